"""Memory of pages with files behind it, as an executor takes it."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("edge._core", reason="needs the native core: pip install .")

from edge.errors import BudgetError, PackageError
from edge.executors.pool_memory import PoolFile, PoolMemory, file_identity, loss_line


def a_file(path: Path, size: int) -> PoolFile:
    path.write_bytes(np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8).tobytes())
    return PoolFile(path, file_identity(path), "make it again")


def test_files_lie_behind_the_pool_as_they_are(tmp_path: Path) -> None:
    files = [a_file(tmp_path / "a", 4096), a_file(tmp_path / "b", 3_000_000)]
    memory = PoolMemory.open(100_096, files)
    assert not memory.pages[:100_096].any()
    memory.pages[:100_096] = 7
    for file, offset in zip(files, memory.file_offsets, strict=True):
        assert offset >= 100_096 and offset % 4096 == 0
        assert memory.pages[offset : offset + file.identity.bytes].tobytes() == file.path.read_bytes()
    maps = Path("/proc/self/maps").read_text("utf-8")
    assert f"{tmp_path}/a" in maps and f"{tmp_path}/b" in maps
    del memory
    gc.collect()
    assert str(tmp_path) not in Path("/proc/self/maps").read_text("utf-8")


def test_another_file_at_the_path_is_not_mapped(tmp_path: Path) -> None:
    file = a_file(tmp_path / "a", 4096)
    aside = a_file(tmp_path / "b", 4096)
    os.replace(aside.path, file.path)
    with pytest.raises(PackageError, match="a: was replaced while it was being opened"):
        PoolMemory.open(4096, [file])
    file.path.unlink()
    with pytest.raises(PackageError, match=r"a: cannot be opened \(No such file"):
        PoolMemory.open(4096, [file])


def test_what_cannot_be_had_is_refused_in_one_line(tmp_path: Path) -> None:
    for size in (1 << 46, 1 << 50):
        with pytest.raises(BudgetError, match=r"for KV pages cannot be had \(.+\)\. Use a smaller context"):
            PoolMemory.open(size)
    folder = PoolFile(tmp_path, file_identity(tmp_path), "make it again")
    with pytest.raises(PackageError, match="cannot be opened"):
        PoolMemory.open(4096, [folder])


def test_the_last_line_of_a_process_is_one_line() -> None:
    assert loss_line(Path("a\nb"), "build again") == (
        "edge: a\\nb: was cut short, or its disk failed, while it was in use. Copy it again, or build again"
    )
