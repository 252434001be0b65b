"""Every reader under fuzz, the short form: the same inputs on every run. The long form is `python tests/fuzz`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from readers import READERS

INPUTS = 150  # by each share of a reader: a second or two a reader


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.build] if reader.needs_build else []) for name, reader in READERS.items()],
)
def test_a_reader_gives_a_result_or_one_line_whatever_it_reads(name: str, tmp_path: Path) -> None:
    if READERS[name].needs_build:
        pytest.importorskip("onnx", reason="needs the build extra: onnx")
    words = [
        "--reader",
        name,
        "--inputs",
        str(INPUTS * READERS[name].share),
        "--jobs",
        "1",
        "--seed",
        "1",
        "--out",
        str(tmp_path),
    ]
    done = subprocess.run([sys.executable, str(Path(__file__).parent), *words], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    # Seeds that are all refused at their first byte would reach no reader.
    row = next(line.split() for line in done.stdout.splitlines() if line.startswith(name))
    accepted, refused, kinds = (int(number.replace(",", "")) for number in row[2:5])
    assert accepted and refused and kinds > 1, done.stdout
