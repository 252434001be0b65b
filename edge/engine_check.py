"""Whether a machine can run a package's engine, decided before a byte of it is deserialised: a plan that does not fit can end
the process. Owns: the rules. Needs: manifest, machine, engine_library. Never: TensorRT, reading the machine.

NVIDIA's rules: a plan is read by the very version that built it (TensorRT and TensorRT-RTX, "Engine Compatibility"). A plan of
TensorRT-RTX runs on every GPU of the compute capability it was built for; one of TensorRT, unless its builder is told otherwise
(HardwareCompatibilityLevel, NONE by default), on the model of GPU on which it was built. A library needs a driver of its CUDA's
major version or newer ("CUDA Compatibility"; within a major version an older driver runs what was compiled beside a newer one).
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from edge.engine_library import TITLES, LibraryFound, NoLibrary
from edge.engine_record import EngineRecord, PlanRecord, is_same_version, version_numbers
from edge.errors import PackageError
from edge.gpu import GpuFound, NoGpu
from edge.machine import Machine
from edge.manifest import Manifest

# CUDA: the first driver that runs programs made for it ("CUDA Compatibility", table 1). A Jetson's comes with JetPack.
_FIRST_DRIVERS = {12: "525 or newer; on a Jetson JetPack 6", 13: "580 or newer; on a Jetson JetPack 7"}


def check_engine(
    manifest: Manifest, place: str, machine: Machine, library: LibraryFound | NoLibrary, plugins: dict[str, str]
) -> None:
    """PackageError where `find_obstacle` finds one."""
    obstacle = find_obstacle(manifest, place, machine, library, plugins)
    if obstacle is not None:
        raise PackageError(f"{place}: {obstacle.fact}. {obstacle.remedy}")


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why an engine cannot run, and what mends it."""

    fact: str  # both sides
    remedy: str


def find_obstacle(
    manifest: Manifest, place: str, machine: Machine, library: LibraryFound | NoLibrary, plugins: dict[str, str]
) -> Obstacle | None:
    """The first thing for which the engine of the package at `place` does not run on `machine`; None: it fits.

    `library` is the installed one of the engine's kind, `plugins` name and SHA-256 of the code that would be loaded.
    """
    assert manifest.engine is not None, "a CPU plan runs on any CPU"
    engine = _Engine(place, manifest, manifest.engine)
    plan = manifest.engine.plan
    if plan is None:
        return Obstacle("not finished: its device makes the plan", f"On the {manifest.target}: {engine.finish}")
    return (
        _gpu_obstacle(engine, machine)
        or _device_obstacle(engine, plan, machine)
        or _driver_obstacle(machine.gpu, library)
        or _library_obstacle(engine, plan, library)
        or _plugin_obstacle(engine, plan, plugins)
    )


@dataclass(frozen=True, slots=True)
class _Engine:
    """What is checked, and the commands that mend it."""

    place: str
    manifest: Manifest
    record: EngineRecord

    @property
    def finish(self) -> str:
        return f"edge build {shlex.quote(self.place)} --finish"

    @property
    def again(self) -> str:
        """Makes the plan anew: from the graphs in the package where it has them."""
        return f"{self.finish} --force" if self.record.kind == "tensorrt" else self.manifest.build_command

    @property
    def on_cpu(self) -> str:
        return self.manifest.build_command_for("cpu")


def _gpu_obstacle(engine: _Engine, machine: Machine) -> Obstacle | None:
    gpu, needed = machine.gpu, f"sm {engine.record.sm} ({engine.manifest.target})"
    if isinstance(gpu, NoGpu):
        fact = f"needs a GPU of {needed}, and here is none: {gpu.reason}"
        return Obstacle(fact, f"{gpu.remedy}; or build for the CPU: {engine.on_cpu}")
    if gpu.first.sm == engine.record.sm:
        return None
    if machine.target is None:
        remedy = f"No device profile has that; what runs here: {engine.on_cpu}"
    else:
        remedy = f"Rebuild for it: {engine.manifest.build_command_for(machine.target)}"
    return Obstacle(f"built for {needed}, this GPU is sm {gpu.first.sm} ({gpu.first.name})", remedy)


def _device_obstacle(engine: _Engine, plan: PlanRecord, machine: Machine) -> Obstacle | None:
    """SMs are not counted: a power mode that turns some of them off makes no other board."""
    if plan.device is None or plan.device == machine.device:
        return None
    fact = f"its plan was built on {plan.device}, here is {machine.device}, and a plan of TensorRT runs where it was built only"
    return Obstacle(fact, f"Build the plan again: {engine.again}")


def _driver_obstacle(gpu: GpuFound | NoGpu, library: LibraryFound | NoLibrary) -> Obstacle | None:
    assert isinstance(gpu, GpuFound), "that there is none was found before"
    known = version_numbers(gpu.cuda)
    if isinstance(library, LibraryFound) and library.cuda_major is not None and known[0] < library.cuda_major:
        newer = _FIRST_DRIVERS.get(library.cuda_major)
        return Obstacle(
            f"{library.title} is made for CUDA {library.cuda_major}, the driver here knows CUDA {gpu.cuda}",
            f"Update the driver{f' ({newer})' if newer else ''}",
        )
    return None


def _library_obstacle(engine: _Engine, plan: PlanRecord, library: LibraryFound | NoLibrary) -> Obstacle | None:
    built, is_rtx = f"built by {TITLES[engine.record.kind]} {plan.version}", engine.record.kind == "tensorrt-rtx"
    install = f"pip install tensorrt-rtx-cu13=={plan.version}"
    if isinstance(library, NoLibrary):
        return Obstacle(f"{built}, and {library.reason}", f"Install it: {install}" if is_rtx else library.remedy)
    if is_same_version(plan.version, library.version):
        return None
    fact = f"{built}, here is {library.version}, and each reads its own plans only"
    remedy = f"Install that one: {install}; or build" if is_rtx else "Build"
    return Obstacle(fact, f"{remedy} the plan again: {engine.again}")


def _plugin_obstacle(engine: _Engine, plan: PlanRecord, ours: dict[str, str]) -> Obstacle | None:
    for name, digest in plan.plugins.items():
        called = f"its plan calls the plugin {name} with SHA-256 {digest[:16]}"
        if name not in ours:
            return Obstacle(
                f"{called}, which this version of edge-zero does not have",
                f"Update it: git pull && ./install.sh; or build for the CPU: {engine.on_cpu}",
            )
        if ours[name] != digest:
            return Obstacle(
                f"{called}, this version of edge-zero has {ours[name][:16]}", f"Build the plan again: {engine.again}"
            )
    return None
