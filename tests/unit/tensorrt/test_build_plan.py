"""A build of a plan from outside, every end of it, with a stand-in for TensorRT on a stand-in for a board."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builds import FAKE, INPUT, OUTPUT, PROFILE, graph, job

from edge.engine_record import EngineProfile, EngineTensor, ShapeRange
from edge.errors import BuildError
from edge.gpu import GpuDevice, GpuFound, NoGpu
from edge.progress import SilentProgress
from engines.tensorrt import builder
from engines.tensorrt.builder import build_plan
from engines.tensorrt.job import BuildJob, BuildOutcome, Built, partial_path, write_message

pytestmark = pytest.mark.usefixtures("fake_board")


def build(wanted: BuildJob) -> BuildOutcome:
    return build_plan(wanted, SilentProgress())


def refusal(wanted: BuildJob) -> str:
    """The message of a build that fails, which leaves nothing but what was there."""
    before = sorted(wanted.plan.parent.iterdir())
    with pytest.raises(BuildError) as caught:
        build(wanted)
    assert sorted(wanted.plan.parent.iterdir()) == before
    message = str(caught.value)
    assert "\n" not in message
    return message


def asked(wanted: BuildJob) -> dict[str, Any]:
    """What the stand-in was asked for, which it writes into its plan."""
    found: dict[str, Any] = json.loads(wanted.plan.read_bytes())
    return found


def test_a_plan_is_built_and_told(tmp_path: Path) -> None:
    wanted = job(graph(tmp_path))
    outcome = build(wanted)
    assert (outcome.version, outcome.driver, outcome.note) == ("10.3.0", "12.6", "")
    assert outcome.plan_bytes == wanted.plan.stat().st_size == 4000
    assert outcome.weights_bytes == 4000
    assert [tensor.name for tensor in outcome.tensors] == ["input_ids", "logits"]
    assert outcome.peak_bytes > 10_000_000
    assert outcome.seconds > 0
    assert not partial_path(wanted.plan).exists()


def test_the_library_gets_types_limits_profiles_and_a_name_of_its_own(tmp_path: Path) -> None:
    wanted = job(graph(tmp_path), workspace_bytes=1 << 30, tactic_dram_bytes=3 << 30)
    build(wanted)
    assert asked(wanted) == {
        "flags": 1 << 1,  # STRONGLY_TYPED
        "name": "graph",
        "limits": {"WORKSPACE": 1 << 30, "TACTIC_DRAM": 3 << 30},
        "profiles": [{"input_ids": [[1, 1], [1, 8], [1, 16]]}],
        "verbosity": "LAYER_NAMES_ONLY",
        "inputs": [["input_ids", "INT64", [1, -1]]],
        "outputs": [["logits", "HALF", [1, -1, 9]]],
    }


def test_without_limits_the_library_keeps_its_own(tmp_path: Path) -> None:
    wanted = job(graph(tmp_path))
    build(wanted)
    assert asked(wanted)["limits"] == {}


def test_a_plan_that_stands_is_replaced(tmp_path: Path) -> None:
    wanted = job(graph(tmp_path))
    wanted.plan.write_text("old")
    build(wanted)
    assert asked(wanted)["name"] == "graph"


def test_a_failed_build_leaves_the_old_plan(tmp_path: Path) -> None:
    wanted = job(graph(tmp_path, end="error"))
    wanted.plan.write_text("old")
    refusal(wanted)
    assert wanted.plan.read_text() == "old"


# --- times that were measured ----------------------------------------------------------------------------------


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
    assert note == f"the timing cache {times} is another GPU's or version's, so it was started anew"
    assert times.read_bytes() == b"+++"


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


# --- what is refused before the library begins -----------------------------------------------------------------


def test_without_a_gpu_nothing_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "probe_gpu", lambda: NoGpu("no NVIDIA driver (libcuda.so.1)", "Install it"))
    assert refusal(job(graph(tmp_path))) == "TensorRT builds on its GPU, and no NVIDIA driver (libcuda.so.1). Install it"


def test_another_gpu_than_the_plan_is_for_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = GpuDevice("NVIDIA A10", "8.6", 24 << 30, integrated=False)
    monkeypatch.setattr(builder, "probe_gpu", lambda: GpuFound("libcuda.so.1", "13.0", (gpu,)))
    message = refusal(job(graph(tmp_path)))
    assert "for sm 8.7, this GPU is sm 8.6 (NVIDIA A10)" in message


def test_a_disk_without_room_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = graph(tmp_path)
    (tmp_path / "weights.data").write_bytes(bytes(4096))
    monkeypatch.setattr(builder.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    message = refusal(job(path))
    assert "takes about 4.1 kB, 1.0 kB are free" in message


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    path = graph(tmp_path)
    with pytest.raises(BuildError, match="No such file or directory"):
        build(job(path, plan=tmp_path / "nowhere" / "model.plan"))


# --- what the library refuses ----------------------------------------------------------------------------------


def test_a_node_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    error = {
        "node": 28,
        "node_name": "/layers.0/attn/Attention",
        "node_operator": "Attention",
        "desc": "No importer\n  registered for op",
    }
    message = refusal(job(graph(tmp_path, errors=[error])))
    assert "node 28, /layers.0/attn/Attention: TensorRT 10.3.0 does not take this Attention" in message
    assert "(No importer registered for op)" in message


def test_a_graph_that_is_none_is_said(tmp_path: Path) -> None:
    error = {"node": -1, "node_name": "", "node_operator": "", "desc": "Failed to parse the ONNX model."}
    message = refusal(job(graph(tmp_path, errors=[error])))
    assert "graph.onnx: TensorRT 10.3.0 cannot read it (Failed to parse the ONNX model.)" in message


@pytest.mark.parametrize(
    ("changed", "fact"),
    [
        ((EngineTensor("input_ids", "int64", (1, 16), True), OUTPUT), "input_ids is an input int64 [1, -1] for the library"),
        ((EngineTensor("input_ids", "float16", (1, -1), True), OUTPUT), "an input float16 [1, -1] in the manifest"),
        ((INPUT,), "logits is an output float16 [1, -1, 9] for the library and missing in the manifest"),
        ((INPUT, OUTPUT, EngineTensor("mask", "bool", (1,), True)), "mask is missing for the library"),
        ((INPUT, EngineTensor("logits", "float16", (1, 1, 8), False)), "logits is an output"),
        ((INPUT, EngineTensor("logits", "float16", (1, 9), False)), "logits is an output"),
    ],
)
def test_other_inputs_and_outputs_than_the_graph_was_made_with_are_refused(
    tmp_path: Path, changed: tuple[EngineTensor, ...], fact: str
) -> None:
    assert fact in refusal(job(graph(tmp_path), tensors=changed))


@pytest.mark.parametrize("names", [(), ("input_ids", "mask")])
def test_a_profile_must_have_each_input_of_free_shape_and_no_other(tmp_path: Path, names: tuple[str, ...]) -> None:
    profile = EngineProfile("decode", {name: ShapeRange((1, 1), (1, 1), (1, 1)) for name in names})
    message = refusal(job(graph(tmp_path), profiles=(PROFILE, profile)))
    assert f"profile decode and the inputs of free shape differ: {'mask' if names else 'input_ids'}" in message


def test_the_last_error_of_the_library_is_told(tmp_path: Path) -> None:
    message = refusal(job(graph(tmp_path, end="error")))
    assert "TensorRT 10.3.0 built no plan (no kernel fits this layer)" in message


# --- how the library may end otherwise -------------------------------------------------------------------------


def test_a_killed_builder_is_taken_for_one_without_memory(tmp_path: Path) -> None:
    message = refusal(job(graph(tmp_path, end="SIGKILL", seconds_a_step=0.3)))
    held = re.search(r"most likely for want of memory: it held ([\d.]+) MB, and [\d.]+ GB were available", message)
    assert held is not None and float(held[1]) > 10


def test_a_crash_is_told_with_its_signal(tmp_path: Path) -> None:
    assert "TensorRT crashed (SIGSEGV) while it built" in refusal(job(graph(tmp_path, end="SIGSEGV")))


def test_a_library_that_cannot_begin_is_told_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_TENSORRT", "no memory on the GPU")
    assert "TensorRT 10.3.0 cannot begin (CUDA initialization failure with error: 2)" in refusal(job(graph(tmp_path)))


def test_memory_that_the_library_asks_for_in_vain_is_told(tmp_path: Path) -> None:
    assert "the memory was not enough for the builder" in refusal(job(graph(tmp_path, end="memory")))


def test_a_fault_of_ours_in_the_worker_is_told_with_its_last_words(tmp_path: Path) -> None:
    path = graph(tmp_path)
    path.write_text("no JSON")
    assert "ended with exit code 1 while it built, its last words: json.decoder.JSONDecodeError" in refusal(job(path))


def worker(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """A worker that says what it likes."""
    monkeypatch.setattr(builder, "worker_command", lambda *words: [sys.executable, "-c", code])


def test_a_success_without_a_plan_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = write_message(Built("10.3.0", 4000, 4000, (INPUT, OUTPUT), 1, ""))
    worker(monkeypatch, f"print({line!r})")
    assert "says that the build succeeded, and there is no plan" in refusal(job(graph(tmp_path)))


@pytest.mark.parametrize(("in_file", "weights"), [(0, 4000), (3999, 4000), (4000, 5001)])
def test_a_success_with_a_plan_that_is_not_whole_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_file: int, weights: int
) -> None:
    wanted = job(graph(tmp_path))
    line = write_message(Built("10.3.0", 4000, weights, (INPUT, OUTPUT), 1, ""))
    worker(monkeypatch, f"open({str(partial_path(wanted.plan))!r}, 'wb').write(bytes({in_file})); print({line!r})")
    assert f"the plan has {in_file} bytes where 4000 were written" in refusal(wanted)


FULL_DISK = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
from engines.tensorrt.worker import main
import sys
sys.argv = ["worker", "build"]
main()
"""


def test_a_disk_that_fills_up_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker(monkeypatch, FULL_DISK)  # a limit on the size of files, which the system tells in other words than a full disk
    message = refusal(job(graph(tmp_path)))
    assert "model.plan: cannot be written (File too large). Free some space" in message
