"""What the readers of models are given: every architecture that can be read, whole before it is damaged."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from target_folder import FolderTarget
from target_gguf import ARCHITECTURES, GgufTarget, model_file

from engines.sources.architectures import CONFIG_READERS, GGUF_READERS


def test_configurations_of_every_model_type_are_damaged(tmp_path: Path) -> None:
    assert FolderTarget(tmp_path).model_types() == set(CONFIG_READERS)


def test_whole_files_of_folders_are_read(tmp_path: Path) -> None:
    target = FolderTarget(tmp_path)
    for data in target.whole_inputs():
        target.run(data)


@pytest.mark.build
def test_gguf_files_of_every_architecture_are_damaged_and_read_while_whole(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="needs the build extra: gguf")
    assert set(ARCHITECTURES) == set(GGUF_READERS)
    target = GgufTarget(tmp_path)
    for architecture in ARCHITECTURES:
        for seed in range(5):
            target.run(model_file(Random(seed), architecture))
