"""The last step of a TensorRT package, on a device that is stood in for: what it takes, writes, and leaves alone."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from finish_board import Board, finished, record_of, refusal, state_of

from edge.errors import BuildError
from edge.hashes import hash_file
from edge.manifest import FILE_NAME, FileRecord, to_json
from edge.package import GRAPH_WEIGHTS, Package
from edge.progress import SilentProgress

pytestmark = pytest.mark.build
pytest.importorskip("edge._core", reason="needs the native core: pip install .")
pytest.importorskip("onnxruntime", reason="needs the build extra: onnxruntime")


@pytest.fixture
def package(board_build: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(board_build, tmp_path / "model.edge"))


def test_a_package_for_a_board_holds_graphs_for_every_tensorrt_and_no_plan(board_build: Path) -> None:
    record = record_of(board_build)
    assert (record.kind, record.sm, record.plan) == ("tensorrt", "8.7", None)
    assert [(graph.since, graph.attention) for graph in record.graphs] == [("10.3", "paged"), ("10.15", "linear")]
    assert all((board_build / str(graph.path)).is_file() for graph in record.graphs)
    assert hash_file(board_build / GRAPH_WEIGHTS, SilentProgress()) == record.weights_sha256
    assert not list(board_build.rglob("*.plan"))


def test_the_last_step_builds_the_newest_graph_within_the_limits_of_the_device(package: Path, board: Board) -> None:
    report = finished(package)
    (job,) = board.jobs
    linear = record_of(package).graphs[1]
    assert job.graph == package / str(linear.path)
    assert (job.sm, job.profiles, job.tensors) == ("8.7", linear.profiles, linear.tensors)
    assert job.workspace_bytes and job.tactic_dram_bytes and job.timing_cache is not None
    assert job.timing_cache.name == "tensorrt-10.16.2.10-sm8.7.cache"
    assert "TensorRT 10.16.2.10" in report.text() and "61 s" in report.text()


def test_the_finished_package_names_its_plan_and_keeps_every_other_file(package: Path, board: Board) -> None:
    before = state_of(package)
    finished(package)
    opened = Package.open(package, force=True)
    plan = record_of(package).plan
    assert plan is not None and opened.file(plan.path).read_bytes() == b"a plan"
    assert (plan.version, plan.driver, plan.device) == ("10.16.2.10", "13.2", "orin-nx-16")
    opened.verify_hashes(SilentProgress())
    after = state_of(package)
    assert after.keys() - before.keys() == {plan.path}
    assert {name for name in before if before[name] != after[name]} == {FILE_NAME}
    assert [path.name for path in package.parent.iterdir()] == ["model.edge"]


def test_a_finished_package_is_built_again_only_when_asked_and_then_has_one_plan(package: Path, board: Board) -> None:
    finished(package)
    assert "finished already, with TensorRT 10.16.2.10" in refusal(package)
    board.version, board.plan = "10.16.3.1", b"another plan"
    finished(package, force=True)
    plan = record_of(package).plan
    assert plan is not None and plan.version == "10.16.3.1"
    assert [path.relative_to(package).as_posix() for path in package.rglob("*.plan")] == [plan.path]
    Package.open(package, force=True).verify_hashes(SilentProgress())


@pytest.mark.parametrize("end", [KeyboardInterrupt(), BuildError("killed, most likely for want of memory")])
def test_whatever_ends_the_builder_leaves_the_package_as_it_was(package: Path, board: Board, end: BaseException) -> None:
    before = state_of(package.parent)
    board.dies = end
    with pytest.raises(type(end)) as caught:
        finished(package)
    assert state_of(package.parent) == before
    assert "--tier int8" not in str(caught.value)  # advice for a refused graph, which this is none


def test_what_an_interrupted_last_step_left_is_cleaned_by_the_next(package: Path, board: Board) -> None:
    for name in ("engine/model-0123456789ab.plan", "engine/.model.plan.new", ".manifest.json.new"):
        (package / name).write_bytes(b"stale")
    finished(package)
    plan = record_of(package).plan
    assert plan is not None
    assert [path.relative_to(package).as_posix() for path in package.rglob("*.plan")] == [plan.path]


@pytest.fixture
def int8_package(package: Path) -> Path:
    """A package with one more graph for TensorRT 10.15, whose activations are int8."""
    opened = Package.open(package, force=True)
    record = record_of(package)
    linear = record.graphs[1]
    path = "engine/graphs/tensorrt-10.15-int8.onnx"
    (package / path).write_bytes(b"a graph with int8 activations")
    digest = hash_file(package / path, SilentProgress())
    graph = replace(linear, activations="int8", path=path, sha256=digest)
    files = opened.manifest.files | {path: FileRecord((package / path).stat().st_size, digest)}
    manifest = replace(opened.manifest, engine=replace(record, graphs=(*record.graphs, graph)), files=files)
    (package / FILE_NAME).write_text(to_json(manifest))
    return package


def test_int8_activations_are_tried_first(int8_package: Path, board: Board) -> None:
    finished(int8_package)
    assert [job.graph.name for job in board.jobs] == ["tensorrt-10.15-int8.onnx"]
    plan = record_of(int8_package).plan
    assert plan is not None and plan.note == ""


def test_what_takes_the_place_of_refused_int8_activations_is_written_down(int8_package: Path, board: Board) -> None:
    board.refuses["tensorrt-10.15-int8.onnx"] = "no kernel " + "very " * 2000 + "fast"
    report = finished(int8_package)
    assert [job.graph.name for job in board.jobs] == ["tensorrt-10.15-int8.onnx", "tensorrt-10.15.onnx"]
    plan = record_of(int8_package).plan
    assert plan is not None and plan.graph_sha256 == record_of(int8_package).graphs[1].sha256
    assert plan.note.startswith("TensorRT refused the graph with int8 activations (no kernel very")
    assert plan.note in report.text()


def test_a_builder_that_dies_over_the_int8_graph_is_not_tried_with_another(int8_package: Path, board: Board) -> None:
    board.dies = BuildError("killed, most likely for want of memory")
    with pytest.raises(BuildError, match="killed"):
        finished(int8_package)
    assert len(board.jobs) == 1
