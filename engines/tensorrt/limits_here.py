"""What the builder may take on the device at hand. Owns: LimitsHere, the check of memory before a build. Needs: profiles,
memory readings, edge.build_memory, by which `edge plan` counts too. Never: a build."""

from __future__ import annotations

from dataclasses import dataclass

from edge.build_memory import build_step, limits_at_hand
from edge.devices import BuildLimits, load_device
from edge.errors import BudgetError
from edge.gpu import GpuDevice
from edge.machine import Machine
from edge.monitors.memory import machine_memory
from edge.package import GRAPH_WEIGHTS, Package
from edge.units import human_bytes


@dataclass(frozen=True, slots=True)
class LimitsHere:
    """Limits, and whose they are."""

    limits: BuildLimits
    note: str  # that they are not those of the package's target; "" where they are


def limits_here(package: Package, machine: Machine, gpu: GpuDevice, *, ignore_budget: bool) -> LimitsHere:
    """Limits of this device's profile where it has one of its own, else of the package's target, within what is available now.
    BudgetError where the builder needs more; with `ignore_budget` the limits are then the profile's."""
    target, note = package.manifest.target, ""
    if machine.is_known and machine.target is not None and machine.target != target:
        note = f"built within the limits of {machine.target}, which this device is; the package is for {target}"
        target = machine.target
    profile = load_device(target)
    assert profile.gpu is not None, "an engine of TensorRT has a GPU"
    available = machine_memory().available
    limits = limits_at_hand(profile, available if profile.gpu.unified else gpu.memory_bytes)
    weights = package.manifest.files[GRAPH_WEIGHTS].bytes
    step = build_step("tensorrt", profile.gpu, weights, here=available, there=available, limits=limits)
    if step.fits:
        return LimitsHere(limits, note)
    if ignore_budget:
        return LimitsHere(profile.gpu.build, note)
    within = "" if step.limit is None else f", of which it may take {human_bytes(step.limit)}"
    raise BudgetError(
        f"{package.path}: the builder takes about {human_bytes(step.total)}, {human_bytes(available)} are available{within}. "
        "Close other programs (on a Jetson: sudo init 3 ends the desktop), or try it all the same: --ignore-budget"
    )
