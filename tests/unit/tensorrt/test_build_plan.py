"""A build of a plan from outside: what the library is asked for, and what is refused before it begins. TensorRT and its board
are stand-ins."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builds import build, graph, job, refusal

from edge.errors import BuildError
from edge.gpu import GpuDevice, GpuFound, NoGpu
from engines.tensorrt import builder
from engines.tensorrt.job import BuildJob, partial_path

pytestmark = pytest.mark.usefixtures("fake_board")


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


def test_without_a_gpu_nothing_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "probe_gpu", lambda: NoGpu("no NVIDIA driver (libcuda.so.1)", "Install it"))
    assert refusal(job(graph(tmp_path))) == "TensorRT builds on its GPU, and no NVIDIA driver (libcuda.so.1). Install it"


def test_tensorrt_rtx_asks_no_driver_so_none_binds_its_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(builder, "probe_gpu")
    assert builder._check_gpu(job(graph(tmp_path), library="tensorrt-rtx")) is None


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
