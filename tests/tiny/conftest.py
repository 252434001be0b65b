"""Tiny models for every test of this folder. They are written once a run and shared: do not change the files."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # so that tests here may say `from synthetic import VARIANTS`

from synthetic import VARIANTS, TinyModel, write_tiny


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str | TinyModel], Path]:
    """tiny_gguf("llama") or tiny_gguf(replace(LLAMA, layers=1)) -> path of its GGUF file."""
    pytest.importorskip("gguf", reason="needs the build extra: gguf")
    folder = tmp_path_factory.mktemp("tiny")
    written: list[tuple[TinyModel, Path]] = []  # a TinyModel holds a dict, so it cannot be a key

    def path_of(model: str | TinyModel) -> Path:
        chosen = VARIANTS[model] if isinstance(model, str) else model
        for known, path in written:
            if known == chosen:
                return path
        name = model if isinstance(model, str) else f"tiny_{len(written)}"
        written_path = write_tiny(folder / f"{name}.gguf", chosen)
        written.append((chosen, written_path))
        return written_path

    return path_of
