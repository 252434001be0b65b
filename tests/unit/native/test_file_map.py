"""Files mapped read-only at a border of 2 MiB (engines/native/core/file_map.h)."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest

core = pytest.importorskip("edge._core", reason="needs the native core: pip install .")

MIB = 1 << 20


@pytest.mark.parametrize("size", [1, 4095, 4096, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 5 * MIB + 123])
def test_a_mapping_has_the_bytes_of_the_file_and_starts_at_a_border(tmp_path: Path, size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    (tmp_path / "file").write_bytes(data.tobytes())
    with (tmp_path / "file").open("rb") as file:
        mapped = core.map_file(file.fileno(), size)
    assert mapped.shape == (size,) and not mapped.flags.writeable and mapped.ctypes.data % (2 * MIB) == 0
    assert np.array_equal(mapped, data)


def test_a_view_outlives_its_mapping_and_nothing_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "mapped_once").write_bytes(b"abc" * MIB)
    with (tmp_path / "mapped_once").open("rb") as file:
        view = core.map_file(file.fileno(), 3 * MIB)[1:7]
    gc.collect()
    assert bytes(view) == b"bcabca"
    assert "mapped_once" in Path("/proc/self/maps").read_text("utf-8")
    del view
    gc.collect()
    assert "mapped_once" not in Path("/proc/self/maps").read_text("utf-8")


def test_what_cannot_be_mapped_is_an_error_of_the_system(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(OSError, match="No such device"):
        core.map_file(folder, 4096)
    os.close(folder)
    with pytest.raises(OSError, match="Bad file descriptor"):
        core.map_file(folder, 4096)
    with pytest.raises(ValueError, match="empty"):
        core.map_file(folder, 0)
