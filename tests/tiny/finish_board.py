"""A board that does the last step of a package, as far as engines.tensorrt.finish can tell. Owns: Board, finished, refusal."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.engine_record import EngineRecord
from edge.errors import BuildError, EdgeError
from edge.gpu import GpuDevice, GpuFound, NoGpu
from edge.hashes import hash_file
from edge.package import Package
from edge.progress import SilentProgress
from engines.tensorrt.finish import FinishReport, finish_package
from engines.tensorrt.job import BuildJob, BuildOutcome, GraphRefused

ORIN = GpuDevice("Orin", "8.7", 16 << 30, integrated=True)


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
