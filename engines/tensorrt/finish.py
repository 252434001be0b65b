"""`edge build NAME.edge --finish`: the last step of a TensorRT engine, on its device. Owns: the order of that step, the choice
of the graph. Needs: package, builder, TensorRT; no onnx, no ONNX Runtime. Never: the other files of the package."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edge import env
from edge.devices import BuildLimits, load_device
from edge.engine_record import EngineRecord, GraphRecord, PlanRecord, version_numbers
from edge.errors import BuildError
from edge.gpu import GpuDevice, NoGpu
from edge.machine import Machine, find_machine
from edge.manifest import Manifest
from edge.package import Package
from edge.progress import Progress
from edge.units import human_bytes
from engines.locks import hold_lock
from engines.tensorrt.builder import build_plan
from engines.tensorrt.finished_plan import hash_plan, new_plan, plan_name, publish_plan, remove_leftovers
from engines.tensorrt.job import BuildJob, GraphRefused
from engines.tensorrt.library import need_library
from engines.tensorrt.limits_here import LimitsHere, limits_here
from engines.tensorrt.log import one_line


@dataclass(frozen=True, slots=True)
class _Here:
    """The device that builds."""

    gpu: GpuDevice
    device: str  # what the plan is bound to
    limits: LimitsHere


@dataclass(frozen=True, slots=True)
class FinishReport:
    """A package whose plan stands."""

    path: Path
    gpu: str
    plan: PlanRecord
    plan_bytes: int
    seconds: float
    peak_bytes: int  # of the builder

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"path": str(self.path)}

    def text(self) -> str:
        """A few lines for a terminal."""
        lines = [
            f"{self.path}: finished for {self.gpu} with TensorRT {self.plan.version}, plan of {human_bytes(self.plan_bytes)}",
            f"  the builder took {self.seconds:.0f} s and {human_bytes(self.peak_bytes)}",
        ]
        if self.plan.note:
            lines.append(f"  {self.plan.note}")
        return "\n".join(lines)


def finish_package(path: Path, *, force: bool, ignore_budget: bool, progress: Progress) -> FinishReport:
    """Builds the plan of the package at `path` for the GPU of this machine. Raises EdgeError; then the package is as it was.

    A plan that stands there is built again only with `force`, which an update of TensorRT makes necessary.
    """
    package = Package.open(path, force=True)
    _unfinished(package, force)
    with hold_lock(package.path.parent / f".{package.path.name}.lock", package.path, "build"):
        package = Package.open(path, force=True)  # whoever held the lock before may have finished it
        record = _unfinished(package, force)
        remove_leftovers(path)
        machine = find_machine()
        gpu = _gpu_for(str(package.path), package.manifest.target, record.sm, machine)
        version = need_library("tensorrt")
        choices = choose_graphs(record, version, package.path)
        package.verify_hashes(progress)
        limits = limits_here(package, machine, gpu, ignore_budget=ignore_budget)
        try:
            return _finish(package, record, choices, version, _Here(gpu, machine.device or gpu.name, limits), progress)
        except OSError as error:
            place = error.filename or package.path
            raise BuildError(f"{place}: {error.strerror or error}. Check permissions and free space") from error
        finally:
            remove_leftovers(path)


def check_device(target: str) -> None:
    """EdgeError where the last step of an engine for `target` cannot be done on this machine: to be asked before a build that
    is to end with it."""
    gpu = load_device(target).gpu
    assert gpu is not None, f"{target}: has engines of TensorRT and no GPU"
    _gpu_for("--finish", target, gpu.sm, find_machine())
    need_library("tensorrt")


def _gpu_for(place: str, target: str, sm: str, machine: Machine) -> GpuDevice:
    """The GPU of this machine. BuildError where there is none, or another than the engine is for."""
    gpu = machine.gpu
    if isinstance(gpu, NoGpu):
        fact = f"the last step is done on the {target}, and here is {gpu.reason}"
        raise BuildError(f"{place}: {fact}. {gpu.remedy}, or copy the package to its device")
    if gpu.first.sm != sm:
        fact = f"is for sm {sm} ({target}), this GPU is sm {gpu.first.sm} ({gpu.first.name})"
        raise BuildError(f"{place}: {fact}. Finish it on its device, or build for this one: edge build MODEL --target NAME")
    return gpu.first


def _unfinished(package: Package, force: bool) -> EngineRecord:
    record = package.manifest.engine
    if record is None or record.kind != "tensorrt":
        kind = "cpu" if record is None else record.kind
        raise BuildError(f"{package.path}: a {kind} engine has no last step. It is whole: edge inspect {package.path}")
    if record.plan is not None and not force:
        fact = f"is finished already, with TensorRT {record.plan.version}"
        raise BuildError(f"{package.path}: {fact}. To build its plan again: --finish --force")
    return record


def choose_graphs(record: EngineRecord, version: str, place: Path) -> tuple[GraphRecord, ...]:
    """The graphs to try in turn with TensorRT `version`: of the newest that it reads, int8 activations first.

    BuildError where it reads none, or only one whose attention needs a plugin.
    """
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:4])  # 10.16.0b1 is one, too
    known = [graph for graph in record.graphs if version_numbers(graph.since) <= numbers]
    if not known:
        oldest = min((graph.since for graph in record.graphs), key=version_numbers)
        raise BuildError(
            f"{place}: its graphs need TensorRT {oldest} or newer, here is {version}. Install a newer JetPack or TensorRT"
        )
    newest = max((graph.since for graph in known), key=version_numbers)
    chosen = [graph for graph in known if graph.since == newest]
    if chosen[0].attention == "paged":
        fact = f"with TensorRT {version} attention needs the plugin edge::PagedAttention, which this version does not have yet"
        linear = [graph.since for graph in record.graphs if graph.attention == "linear"]
        needs_none = (
            f"TensorRT {min(linear, key=version_numbers)} or newer (JetPack 7.2) needs none; until then" if linear else ""
        )
        raise BuildError(f"{place}: {fact}. {needs_none or 'Meanwhile'}: edge build MODEL --target cpu")
    return tuple(sorted(chosen, key=lambda graph: graph.activations != "int8"))


def _finish(
    package: Package,
    record: EngineRecord,
    choices: tuple[GraphRecord, ...],
    version: str,
    here: _Here,
    progress: Progress,
) -> FinishReport:
    """Builds the first of `choices` that TensorRT takes, and puts its plan into the package."""
    refused = ""
    for number, graph in enumerate(choices, 1):
        try:
            outcome = build_plan(_job(package, record, graph, version, here.limits.limits), progress)
        except GraphRefused as error:
            if number == len(choices):
                raise _with_advice(error, package.manifest, version) from error
            # An INT8 QDQ graph that builds elsewhere fails on sm_87 with 10.16.2 (TensorRT issue 4832).
            refused = f"TensorRT refused the graph with {graph.activations} activations ({one_line(str(error))})"
            continue
        digest = hash_plan(package, progress)
        note = "; ".join(part for part in (here.limits.note, refused, outcome.note) if part)
        made = PlanRecord(plan_name(digest), graph.sha256, outcome.version, outcome.driver, here.device, {}, note)
        publish_plan(package, made, digest)
        return FinishReport(package.path, str(here.gpu), made, outcome.plan_bytes, outcome.seconds, outcome.peak_bytes)
    raise AssertionError("choose_graphs gives one at least")


def _job(package: Package, record: EngineRecord, graph: GraphRecord, version: str, limits: BuildLimits) -> BuildJob:
    assert graph.path is not None, "graphs of TensorRT are kept"
    return BuildJob(
        library="tensorrt",
        graph=package.file(graph.path),
        plan=new_plan(package),
        sm=record.sm,
        profiles=graph.profiles,
        tensors=graph.tensors,
        workspace_bytes=limits.workspace_bytes,
        tactic_dram_bytes=limits.tactic_dram_bytes,
        timing_cache=env.cache_folder() / "timing" / f"tensorrt-{version}-sm{record.sm}.cache",
    )


def _with_advice(error: GraphRefused, manifest: Manifest, version: str) -> BuildError:
    """What TensorRT says of int4 is not always that it is int4 which it does not take."""
    if manifest.tier != "int4":
        return error
    other = manifest.build_command_for(manifest.target, tier="int8")
    return BuildError(
        f"{error}. NVIDIA documents int4 in groups of 64 and 128, and this tier has 32; "
        f"if that is what TensorRT {version} refuses, build on the PC: {other}"
    )
