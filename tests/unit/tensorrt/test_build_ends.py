"""What a library refuses, and every way in which its process may end, with a stand-in for TensorRT."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from builds import INPUT, OUTPUT, PROFILE, graph, job, refusal

from edge.engine_record import EngineProfile, EngineTensor, ShapeRange
from engines.tensorrt import builder
from engines.tensorrt.job import Built, partial_path, write_message

pytestmark = pytest.mark.usefixtures("fake_board")


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


def test_a_profile_that_the_library_refuses_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_TENSORRT", "no profiles")
    assert "graph.onnx: TensorRT 10.3.0 does not take the profile prefill" in refusal(job(graph(tmp_path)))


def test_the_last_error_of_the_library_is_told(tmp_path: Path) -> None:
    message = refusal(job(graph(tmp_path, end="error")))
    assert "TensorRT 10.3.0 built no plan (no kernel fits this layer)" in message


def test_a_killed_builder_is_taken_for_one_without_memory(tmp_path: Path) -> None:
    message = refusal(job(graph(tmp_path, end="SIGKILL", seconds_a_step=0.3)))
    held = re.search(r"most likely for want of memory: it held ([\d.]+) MB, and [\d.]+ GB were available", message)
    assert held is not None and float(held[1]) > 10


def test_a_crash_is_told_with_its_signal(tmp_path: Path) -> None:
    assert "TensorRT crashed (SIGSEGV) while it built" in refusal(job(graph(tmp_path, end="SIGSEGV")))


def test_a_signal_without_a_name_is_told_with_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker(monkeypatch, "import os; os.kill(os.getpid(), 40)")
    assert "TensorRT crashed (signal 40) while it built" in refusal(job(graph(tmp_path)))


def test_a_library_that_cannot_begin_is_told_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_TENSORRT", "no memory on the GPU")
    assert "TensorRT 10.3.0 cannot begin (CUDA initialization failure with error: 2)" in refusal(job(graph(tmp_path)))


def test_memory_that_the_library_asks_for_in_vain_is_told(tmp_path: Path) -> None:
    assert "the memory was not enough for the builder" in refusal(job(graph(tmp_path, end="memory")))


def test_a_fault_of_ours_in_the_worker_is_told_with_its_last_words(tmp_path: Path) -> None:
    path = graph(tmp_path)
    path.write_text("no JSON")
    assert "TensorRT ended (exit code 1) while it built, its last words: json.decoder.JSONDecodeError" in refusal(job(path))


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
