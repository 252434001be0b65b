"""The last step of a TensorRT package, on a device that is stood in for: what it takes, writes, and leaves alone."""

from __future__ import annotations

import shutil
import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from built_package import build_tiny
from edge_process import Edge
from synthetic import TinyModel

from edge.engine_record import EngineRecord
from edge.errors import BudgetError, BuildError, EdgeError, PackageError
from edge.gpu import GpuDevice, GpuFound, NoGpu
from edge.hashes import hash_file
from edge.machine import Machine
from edge.manifest import FILE_NAME, FileRecord, to_json
from edge.monitors.memory import machine_memory
from edge.package import GRAPH_WEIGHTS, Package
from edge.progress import SilentProgress
from engines.tensorrt import finish, finished_plan, limits_here
from engines.tensorrt.finish import FinishReport, finish_package
from engines.tensorrt.job import BuildJob, BuildOutcome, GraphRefused
from engines.tensorrt.library import LibraryMissing

UNIT = Path(__file__).parents[1] / "unit"
sys.path.insert(0, str(UNIT / "gpu"))  # stand_in_driver

pytestmark = pytest.mark.build
pytest.importorskip("edge._core", reason="needs the native core: pip install .")
pytest.importorskip("onnxruntime", reason="needs the build extra: onnxruntime")

ORIN = GpuDevice("Orin", "8.7", 16 << 30, integrated=True)
Gguf = Callable[[str | TinyModel], Path]


@pytest.fixture(scope="module")
def built(tiny_gguf: Gguf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package for a board, without its plan. Do not change it."""
    out = tmp_path_factory.mktemp("board") / "model.edge"
    build_tiny(tiny_gguf("gemma"), out, target="orin-nx-16", context=64)
    return out


@pytest.fixture
def package(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "model.edge"))


class Board:
    """A Jetson with TensorRT, as far as finish.py can tell; `jobs` are what its builder was asked for."""

    def __init__(self) -> None:
        self.version = "10.16.2.10"
        self.gpu: GpuFound | NoGpu = GpuFound("libcuda.so.1", "13.2", (ORIN,))
        self.plan = b"a plan"
        self.refuses: dict[str, str] = {}  # name of a graph's file: why
        self.dies: BaseException | None = None  # what ends the builder in the middle
        self.jobs: list[BuildJob] = []

    def need_library(self, kind: str) -> str:
        assert kind == "tensorrt"
        return self.version

    def build_plan(self, job: BuildJob, progress: object) -> BuildOutcome:
        self.jobs.append(job)
        if job.graph.name in self.refuses:
            raise GraphRefused(self.refuses[job.graph.name])
        if self.dies:
            job.plan.write_bytes(b"half a plan")
            raise self.dies
        job.plan.write_bytes(self.plan)
        return BuildOutcome(self.version, "13.2", len(self.plan), 5, job.tensors, 2_000_000_000, 61.0, "")


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Board:
    made = Board()
    monkeypatch.setattr(finish, "find_machine", lambda: Machine(None, made.gpu, "orin-nx-16", True))
    monkeypatch.setattr(finish, "need_library", made.need_library)
    monkeypatch.setattr(finish, "build_plan", made.build_plan)
    return made


def finished(path: Path, *, force: bool = False, ignore_budget: bool = False) -> FinishReport:
    return finish_package(path, force=force, ignore_budget=ignore_budget, progress=SilentProgress())


def record_of(path: Path) -> EngineRecord:
    record = Package.open(path, force=True).manifest.engine
    assert record is not None
    return record


def state_of(folder: Path) -> dict[str, str]:
    """Every file below `folder`, and its hash."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hash_file(path, SilentProgress()) for path in files}


def refusal(path: Path, kind: type[EdgeError] = BuildError) -> str:
    """The message with which the package is refused; it must be as it was then, and nothing must lie beside it."""
    before = state_of(path.parent)
    with pytest.raises(kind) as caught:
        finished(path)
    assert state_of(path.parent) == before
    message = str(caught.value)
    assert "\n" not in message and str(path) in message
    return message


def test_a_package_for_a_board_holds_graphs_for_every_tensorrt_and_no_plan(built: Path) -> None:
    record = record_of(built)
    assert (record.kind, record.sm, record.plan) == ("tensorrt", "8.7", None)
    assert [(graph.since, graph.attention) for graph in record.graphs] == [("10.3", "paged"), ("10.15", "linear")]
    assert all((built / str(graph.path)).is_file() for graph in record.graphs)
    assert hash_file(built / GRAPH_WEIGHTS, SilentProgress()) == record.weights_sha256
    assert not list(built.rglob("*.plan"))


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


def test_jetpack_6_waits_for_the_plugin_and_is_told_so(package: Path, board: Board) -> None:
    board.version = "10.3.0"
    message = refusal(package)
    assert "needs the plugin edge::PagedAttention" in message and "TensorRT 10.15 or newer (JetPack 7.2)" in message
    assert board.jobs == []


def test_a_tensorrt_that_reads_no_graph_is_refused_with_both_versions(package: Path, board: Board) -> None:
    board.version = "8.6.2"
    assert "need TensorRT 10.3 or newer, here is 8.6.2" in refusal(package)


def test_no_driver_another_gpu_and_no_tensorrt_are_told_apart(package: Path, board: Board) -> None:
    board.gpu = NoGpu("no NVIDIA driver (libcuda.so.1)", "Install it")
    assert "the last step is done on the orin-nx-16, and here is no NVIDIA driver" in refusal(package)
    board.gpu = GpuFound("libcuda.so.1", "13.0", (GpuDevice("NVIDIA A10", "8.6", 24 << 30, integrated=False),))
    assert "is for sm 8.7 (orin-nx-16), this GPU is sm 8.6 (NVIDIA A10)" in refusal(package)


def test_a_missing_library_says_how_to_install_it(package: Path, board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(kind: str) -> str:
        raise LibraryMissing(f"{package}: TensorRT is not installed. Install it")

    monkeypatch.setattr(finish, "need_library", missing)
    assert "Install it" in refusal(package)


def test_memory_is_asked_for_before_the_builder_runs(package: Path, board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_here, "machine_memory", lambda: replace(machine_memory(), available=1 << 30))
    assert "the builder takes about" in refusal(package, BudgetError)
    assert board.jobs == []
    finished(package, ignore_budget=True)


def test_damaged_weights_are_found_before_the_builder_reads_them(package: Path, board: Board) -> None:
    weights = bytearray((package / GRAPH_WEIGHTS).read_bytes())
    weights[100] ^= 1
    (package / GRAPH_WEIGHTS).write_bytes(weights)
    assert "SHA-256" in refusal(package, PackageError)
    assert board.jobs == []


def test_a_builder_that_fails_leaves_the_package_unfinished(package: Path, board: Board) -> None:
    board.refuses["tensorrt-10.15.onnx"] = f"{package}: no kernel fits"
    assert "no kernel fits" in refusal(package)
    assert record_of(package).plan is None


def test_a_refused_int4_graph_names_the_tier_that_needs_no_blocks(package: Path, board: Board) -> None:
    board.refuses["tensorrt-10.15.onnx"] = f"{package}: block size 32"
    assert "edge build" in refusal(package) and "--tier int8" in refusal(package)


def test_a_disk_that_fills_while_the_manifest_is_written_leaves_an_unfinished_package(
    package: Path, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(value: object) -> str:
        raise OSError(28, "No space left on device", str(package / FILE_NAME))

    monkeypatch.setattr(finished_plan, "to_json", full)
    assert "manifest.json: No space left on device" in refusal(package)


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


def test_a_read_only_package_is_refused_in_one_line(package: Path, board: Board) -> None:
    folder = package / "engine"
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        if os_is_root():
            pytest.skip("needs a user other than root")
        assert "Permission denied" in refusal(package)
    finally:
        folder.chmod(stat.S_IRWXU)


def os_is_root() -> bool:
    import os

    return os.geteuid() == 0


def test_a_cpu_package_has_no_last_step(tiny_gguf: Gguf, board: Board, tmp_path: Path) -> None:
    build_tiny(tiny_gguf("llama"), tmp_path / "cpu.edge")
    assert "a cpu engine has no last step" in refusal(tmp_path / "cpu.edge")


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


Stood = Callable[[str], dict[str, str]]


@pytest.fixture
def stood_in(tmp_path: Path) -> Stood:
    """The environment of a process on a Jetson: a driver that says Orin, and a TensorRT of a version that writes plans; both
    are ours."""
    from stand_in_driver import ORIN as DRIVER
    from stand_in_driver import compile_driver

    driver = tmp_path / "driver"
    driver.mkdir()
    compile_driver(driver, **DRIVER)
    text = (UNIT / "tensorrt" / "fake_tensorrt" / "tensorrt.py").read_text()

    def environment(version: str) -> dict[str, str]:
        library = tmp_path / version
        library.mkdir(exist_ok=True)
        (library / "tensorrt.py").write_text(text.replace('__version__ = "10.3.0"', f'__version__ = "{version}"'))
        return {"LD_LIBRARY_PATH": str(driver), "PYTHONPATH": str(library), "EDGE_CACHE": str(tmp_path / "cache")}

    return environment


def test_the_command_finishes_a_package_and_verify_opens_its_plan(
    edge: Edge, package: Path, stood_in: Stood, tmp_path: Path
) -> None:
    on_board = stood_in("10.16.2.10")
    done = edge.run("build", package, "--finish", "--ignore-budget", **on_board)
    assert done.returncode == 0, done.stderr
    assert "finished for Orin, sm 8.7" in done.stdout and "TensorRT 10.16.2.10" in done.stdout
    assert [path.name for path in (tmp_path / "cache/timing").iterdir()] == ["tensorrt-10.16.2.10-sm8.7.cache"]
    done = edge.run("verify", package, **on_board)
    assert "the plan, opened on this GPU, has the manifest's inputs, outputs and profiles" in done.stdout, done.stderr
    assert "no executor for TensorRT yet" in edge.refuse("run", package, "hello", "--force", **on_board)


def test_the_command_says_what_jetpack_6_waits_for(edge: Edge, package: Path, stood_in: Stood) -> None:
    before = state_of(package)
    line = edge.refuse("build", package, "--finish", **stood_in("10.3.0"))
    assert "with TensorRT 10.3.0 attention needs the plugin edge::PagedAttention" in line
    assert state_of(package) == before


def test_another_tensorrt_than_the_one_that_built_is_refused_with_the_command_that_mends_it(
    edge: Edge, package: Path, stood_in: Stood
) -> None:
    edge.succeed("build", package, "--finish", "--ignore-budget", **stood_in("10.16.2.10"))
    newer = stood_in("10.17.0.1")
    assert f"edge build {package} --finish --force" in edge.refuse("run", package, "hello", "--force", **newer)
    edge.succeed("build", package, "--finish", "--force", "--ignore-budget", **newer)
    plan = record_of(package).plan
    assert plan is not None and plan.version == "10.17.0.1"
