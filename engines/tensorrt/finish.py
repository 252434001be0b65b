"""`edge build NAME.edge --finish`: the last step of a TensorRT engine, on its device. Owns: the choice of the graph, the new
manifest. Needs: package, builder, TensorRT; no onnx, no ONNX Runtime. Never: the other files of the package.

The plan stands under a name of its own before the manifest that names it takes the place of the old one, so that whatever ends
the process leaves a package that is finished or one that is not.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from edge import env
from edge.build_memory import builder_bytes
from edge.devices import load_device
from edge.engine_record import EngineRecord, GraphRecord, PlanRecord, version_numbers
from edge.errors import BudgetError, BuildError
from edge.gpu import NoGpu, probe_gpu
from edge.hashes import file_sha256
from edge.manifest import FILE_NAME, FileRecord, Manifest, to_json
from edge.monitors.memory import machine_memory
from edge.package import GRAPH_WEIGHTS, Package
from edge.progress import Progress
from edge.units import human_bytes
from engines.locks import lock_file
from engines.tensorrt.builder import build_plan
from engines.tensorrt.job import BuildJob, BuildOutcome
from engines.tensorrt.library import need_library


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
    record = _unfinished(package, force)
    gpu = probe_gpu()
    if isinstance(gpu, NoGpu):
        fact = f"the last step is done on the {package.manifest.target}, and here is {gpu.reason}"
        raise BuildError(f"{package.path}: {fact}. {gpu.remedy}, or copy the package to its device")
    if gpu.first.sm != record.sm:
        fact = f"is for sm {record.sm} ({package.manifest.target}), this GPU is sm {gpu.first.sm} ({gpu.first.name})"
        raise BuildError(
            f"{package.path}: {fact}. Finish it on its device, or build for this one: edge build MODEL --target NAME"
        )
    version = need_library("tensorrt")
    choices = choose_graphs(record, version, package.path)
    package.verify_hashes(progress)
    _check_memory(package, record, ignore_budget)
    folder = package.path / "engine"
    lock = lock_file(package.path.parent / f".{package.path.name}.lock", package.path, "build")
    try:
        outcome, graph, plan = _build(package, record, choices, version, folder, progress)
        return _publish(package, record, graph, plan, outcome, str(gpu.first), progress)
    except OSError as error:
        place = error.filename or package.path
        raise BuildError(f"{place}: {error.strerror or error}. Check permissions and free space") from error
    finally:
        os.close(lock)
        with suppress(OSError):
            (package.path.parent / f".{package.path.name}.lock").unlink()


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
    known = [graph for graph in record.graphs if version_numbers(graph.since) <= version_numbers(version)]
    if not known:
        oldest = min((graph.since for graph in record.graphs), key=version_numbers)
        raise BuildError(
            f"{place}: its graphs need TensorRT {oldest} or newer, here is {version}. Install a newer JetPack or TensorRT"
        )
    newest = max((graph.since for graph in known), key=version_numbers)
    chosen = [graph for graph in known if graph.since == newest]
    if chosen[0].attention == "paged":
        linear = min((graph.since for graph in record.graphs if graph.attention == "linear"), key=version_numbers)
        fact = f"with TensorRT {version} attention needs the plugin edge::PagedAttention, which this version does not have yet"
        raise BuildError(
            f"{place}: {fact}. TensorRT {linear} or newer (JetPack 7.2) needs none; until then: edge build MODEL --target cpu"
        )
    return tuple(sorted(chosen, key=lambda graph: graph.activations != "int8"))


def _check_memory(package: Package, record: EngineRecord, ignore_budget: bool) -> None:
    needed = builder_bytes("tensorrt", package.manifest.files[GRAPH_WEIGHTS].bytes)
    available = machine_memory().available
    if needed > available and not ignore_budget:
        raise BudgetError(
            f"{package.path}: the builder takes about {human_bytes(needed)}, {human_bytes(available)} are available. Close "
            "other programs (on a Jetson: sudo init 3 ends the desktop), or try it all the same: --ignore-budget"
        )


def _build(
    package: Package,
    record: EngineRecord,
    choices: tuple[GraphRecord, ...],
    version: str,
    folder: Path,
    progress: Progress,
) -> tuple[BuildOutcome, GraphRecord, Path]:
    """The first of `choices` that the builder takes. What it refused is said in the outcome's note."""
    gpu = load_device(package.manifest.target).gpu
    assert gpu is not None, "the SM of the record is that of a GPU"
    refused = ""
    for number, graph in enumerate(choices, 1):
        assert graph.path is not None, "graphs of TensorRT are kept"
        plan = folder / ".model.plan.new"
        job = BuildJob(
            library="tensorrt",
            graph=package.file(graph.path),
            plan=plan,
            sm=record.sm,
            profiles=graph.profiles,
            tensors=graph.tensors,
            workspace_bytes=gpu.build.workspace_bytes,
            tactic_dram_bytes=gpu.build.tactic_dram_bytes,
            timing_cache=env.cache_folder() / "timing" / f"tensorrt-{version}-sm{record.sm}.cache",
        )
        try:
            outcome = build_plan(job, progress)
        except BuildError as error:
            if number == len(choices):
                raise _with_advice(error, package.manifest, version) from error
            # An INT8 QDQ graph that builds elsewhere fails on sm_87 with 10.16.2 (TensorRT issue 4832).
            taken = choices[number].activations
            refused = f"TensorRT refused the graph with {graph.activations} activations ({error}), so they are {taken}"
            continue
        note = "; ".join(part for part in (refused, outcome.note) if part)
        return replace(outcome, note=note), graph, plan
    raise AssertionError("choose_graphs gives one at least")


def _with_advice(error: BuildError, manifest: Manifest, version: str) -> BuildError:
    """What TensorRT says of int4 is not always that it is int4 which it does not take."""
    if manifest.tier != "int4":
        return error
    other = manifest.build_command_for(manifest.target, tier="int8")
    return BuildError(
        f"{error}. NVIDIA documents int4 in groups of 64 and 128, and this tier has 32; "
        f"if that is what TensorRT {version} refuses, build on the PC: {other}"
    )


def _publish(
    package: Package,
    record: EngineRecord,
    graph: GraphRecord,
    plan: Path,
    outcome: BuildOutcome,
    gpu: str,
    progress: Progress,
) -> FinishReport:
    digest = file_sha256(plan, progress)
    name = f"engine/model-{digest[:12]}.plan"
    made = PlanRecord(name, graph.sha256, outcome.version, outcome.driver, {}, outcome.note)
    old = record.plan.path if record.plan is not None else None
    files = {key: value for key, value in package.manifest.files.items() if key != old}
    files[name] = FileRecord(plan.stat().st_size, digest)
    manifest: Manifest = replace(package.manifest, engine=replace(record, plan=made), files=dict(sorted(files.items())))
    with plan.open("rb") as file:
        os.fsync(file.fileno())
    plan.rename(package.path / name)
    new = package.path / f".{FILE_NAME}.new"
    with new.open("w", encoding="utf-8") as out:
        out.write(to_json(manifest))
        out.flush()
        os.fsync(out.fileno())
    new.rename(package.path / FILE_NAME)
    for stale in (package.path / "engine").glob("model-*.plan"):
        if stale.name != Path(name).name:
            stale.unlink()
    return FinishReport(package.path, gpu, made, files[name].bytes, outcome.seconds, outcome.peak_bytes)
