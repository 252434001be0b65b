"""Times of kernels that TensorRT measured, kept from build to build, however a build ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builds import FAKE, build, graph, job

from edge.errors import BuildError
from engines.tensorrt.config import save_timing_cache

pytestmark = pytest.mark.usefixtures("fake_board")


def test_times_are_kept_from_build_to_build(tmp_path: Path) -> None:
    times = tmp_path / "cache/folder/times"
    wanted = job(graph(tmp_path), timing_cache=times)
    assert build(wanted).note == ""
    assert times.read_bytes() == b"+++"
    assert build(wanted).note == ""
    assert times.read_bytes() == b"++++++"
    assert list(times.parent.iterdir()) == [times]


def test_times_of_another_gpu_are_not_used_and_that_is_said(tmp_path: Path) -> None:
    times = tmp_path / "times"
    times.write_bytes(b"another GPU's")
    note = build(job(graph(tmp_path), timing_cache=times)).note
    assert note == f"the timing cache {times} is damaged, or another GPU's or version's, so it was started anew"
    assert times.read_bytes() == b"+++"


def test_times_that_are_damaged_are_not_used_and_that_is_said(tmp_path: Path) -> None:
    times = tmp_path / "times"
    times.write_bytes(b"torn by a power cut")
    note = build(job(graph(tmp_path), timing_cache=times)).note
    assert note == f"the timing cache {times} is damaged, or another GPU's or version's, so it was started anew"
    assert times.read_bytes() == b"+++"


def test_a_library_that_makes_no_timing_cache_builds_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_TENSORRT", "no timing cache")
    assert build(job(graph(tmp_path), timing_cache=tmp_path / "times")).note == "the library kept no times"
    assert not (tmp_path / "times").exists()


def test_times_are_on_the_disk_before_they_get_their_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[bytes, bool]] = []
    times = tmp_path / "times"

    def fsync(file: int) -> None:
        synced.append((Path(f"/proc/self/fd/{file}").read_bytes(), times.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    config: Any = SimpleNamespace(get_timing_cache=lambda: SimpleNamespace(serialize=lambda: b"+++"))
    assert save_timing_cache(config, times) == ""
    assert synced == [(b"+++", False)]


def test_times_that_cannot_be_kept_do_not_fail_the_build(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    note = build(job(graph(tmp_path), timing_cache=tmp_path / "file" / "times")).note
    assert "could not be read (Not a directory)" in note and "could not be written (" in note


def test_times_are_kept_when_the_build_fails(tmp_path: Path) -> None:
    times = tmp_path / "times"
    with pytest.raises(BuildError):
        build(job(graph(tmp_path, end="error"), timing_cache=times))
    assert times.read_bytes() == b"+++"


INTERRUPTED = """
import sys
from pathlib import Path
from builds import job
from edge.gpu import GpuDevice, GpuFound
from edge.progress import SilentProgress
from engines.tensorrt import builder

builder.probe_gpu = lambda: GpuFound("libcuda.so.1", "12.6", (GpuDevice("Orin", "8.7", 1 << 34, True),))
cache = Path(sys.argv[2]) if len(sys.argv) > 2 else None
builder.build_plan(job(Path(sys.argv[1]), timing_cache=cache), SilentProgress())
"""


def interrupted_build(tmp_path: Path, number: signal.Signals, *cache: Path) -> int:
    """Begins a build that would take minutes, sends `number` to its caller, waits for both processes, returns the exit code."""
    began = tmp_path / "began"
    path = graph(tmp_path, steps=10_000, seconds_a_step=0.05, began=str(began))
    places = os.pathsep.join([str(FAKE), str(Path(__file__).parent)])
    command = [sys.executable, "-c", INTERRUPTED, str(path), *map(str, cache)]
    caller = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": places}, stderr=subprocess.DEVNULL)
    wait_for(lambda: began.exists() and began.read_text())
    worker = int(began.read_text())
    caller.send_signal(number)
    code = caller.wait()
    wait_for(lambda: not is_worker(worker))
    return code


def is_worker(pid: int) -> bool:
    """Whether that process is a worker of ours; one that ended, collected or not, has no command line."""
    try:
        return b"engines.tensorrt.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def wait_for(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_ctrl_c_keeps_the_times_and_nothing_else(tmp_path: Path) -> None:
    times = tmp_path / "times"
    assert interrupted_build(tmp_path, signal.SIGINT, times) == -signal.SIGINT
    assert set(times.read_bytes()) == {ord("+")}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["began", "graph.onnx", "times"]


def test_ctrl_c_without_times_ends_at_once(tmp_path: Path) -> None:
    assert interrupted_build(tmp_path, signal.SIGINT) == -signal.SIGINT
    assert sorted(path.name for path in tmp_path.iterdir()) == ["began", "graph.onnx"]


def test_a_build_whose_caller_is_killed_ends_and_keeps_its_times(tmp_path: Path) -> None:
    times = tmp_path / "times"
    assert interrupted_build(tmp_path, signal.SIGKILL, times) == -signal.SIGKILL
    wait_for(times.exists)
    assert set(times.read_bytes()) == {ord("+")}
