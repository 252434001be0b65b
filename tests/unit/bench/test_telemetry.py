"""ONNX Runtime, imported by us, neither sends anything nor leaves a file behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import edge
import edge.bench.peer_script as peer_script

pytest.importorskip("onnxruntime", reason="needs the build extra")

JOB = {"engine": "onnxruntime", "model": "/nowhere", "ids": [1], "decode": 1, "threads": 1, "scratch": "", "flash": False}
REFERENCE = f"""
import sys
sys.path[0] = {str(Path(edge.__file__).parents[1])!r}
from engines.reference.ort import OrtReference
try:
    OrtReference("/nowhere", 1)
except Exception:
    print("onnxruntime" in sys.modules)
"""


@pytest.mark.parametrize(
    ("words", "said"),
    [([str(Path(peer_script.__file__))], '"error": "NoSuchFile'), (["-c", REFERENCE], "True")],
    ids=["beside us", "as the reference"],
)
def test_no_file_is_left_in_the_folder_for_temporary_ones(words: list[str], said: str, tmp_path: Path) -> None:
    # CI turns it off as well, and tests/conftest.py does.
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "ORT_DISABLE_TELEMETRY")}
    done = subprocess.run(
        [sys.executable, *words], input=json.dumps(JOB), capture_output=True, text=True, check=True, timeout=120,
        env={**environment, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert said in done.stdout, "it was imported"
    assert list(tmp_path.iterdir()) == []
