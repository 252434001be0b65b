"""Readings of /proc and of control groups, from folders made for the purpose."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from edge.monitors.memory import MachineMemory, machine_memory, process_memory

MEMINFO = "MemTotal:       8000000 kB\nMemFree:         100000 kB\nMemAvailable:   6000000 kB\nHugePages_Total:       0\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    folder = tmp_path / "proc"
    (folder / "self").mkdir(parents=True)
    (folder / "meminfo").write_text(MEMINFO)
    return folder


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_available_memory_counts_the_page_cache_that_gives_way(proc: Path, tmp_path: Path) -> None:
    assert machine_memory(proc, tmp_path / "cgroup") == MachineMemory(8_000_000 * 1024, 6_000_000 * 1024)


def test_a_control_group_of_version_2_limits_what_is_available(proc: Path, tmp_path: Path) -> None:
    cgroup = tmp_path / "cgroup"
    write(proc / "self/cgroup", "0::/user/edge\n")
    write(cgroup / "user/memory.max", "2000000000\n")
    write(cgroup / "user/memory.current", "1500000000\n")
    write(cgroup / "user/memory.stat", "anon 1000000000\ninactive_file 400000000\n")
    write(cgroup / "user/edge/memory.max", "max\n")
    write(cgroup / "user/edge/memory.current", "1000\n")
    assert machine_memory(proc, cgroup) == MachineMemory(2_000_000_000, 900_000_000)


def test_a_control_group_of_version_1_limits_too(proc: Path, tmp_path: Path) -> None:
    cgroup = tmp_path / "cgroup"
    write(proc / "self/cgroup", "5:cpu:/a\n4:memory:/a\n")
    write(cgroup / "memory/a/memory.limit_in_bytes", "1000000000\n")
    write(cgroup / "memory/a/memory.usage_in_bytes", "1200000000\n")
    write(cgroup / "memory/memory.limit_in_bytes", "9223372036854771712\n")
    write(cgroup / "memory/memory.usage_in_bytes", "5\n")
    assert machine_memory(proc, cgroup) == MachineMemory(1_000_000_000, 0)


def test_the_limit_of_a_container_stands_at_the_root(proc: Path, tmp_path: Path) -> None:
    cgroup = tmp_path / "cgroup"
    write(proc / "self/cgroup", "0::/docker/0123\n")  # the host's path, which is not here
    write(cgroup / "memory.max", "3000000000\n")
    write(cgroup / "memory.current", "0\n")
    assert machine_memory(proc, cgroup).total == 3_000_000_000


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc (Linux)")
def test_touched_memory_shows_in_this_process() -> None:
    before = process_memory()
    size = 32 << 20
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block[:: mmap.PAGESIZE] = b"x" * (size // mmap.PAGESIZE)
    after = process_memory()
    block.close()
    assert before.anonymous is not None
    assert after.anonymous is not None
    assert after.anonymous - before.anonymous > 0.9 * size
    assert after.peak is not None
    assert after.resident is not None
    assert after.peak >= after.resident > 0
