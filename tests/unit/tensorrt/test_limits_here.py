"""What a builder may take on the device at hand: whose profile counts, and what is available."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "package"))  # engine_packages

from engine_packages import write_unfinished

from edge.build_memory import MARGIN_BYTES, build_step
from edge.devices import BuildLimits, Gpu, load_device
from edge.errors import BudgetError
from edge.gpu import GpuDevice, GpuFound
from edge.machine import Machine
from edge.monitors.memory import MachineMemory
from edge.package import Package
from engines.tensorrt import limits_here as module
from engines.tensorrt.limits_here import LimitsHere, limits_here

GB = 10**9
ORIN = GpuDevice("Orin", "8.7", 64 << 30, integrated=True)
A10 = GpuDevice("NVIDIA A10", "8.6", 23 * GB, integrated=False)
Limits = Callable[..., LimitsHere]


def machine(target: str, gpu: GpuDevice = ORIN, *, is_known: bool = True) -> Machine:
    return Machine(None, GpuFound("libcuda.so.1", "13.2", (gpu,)), target, is_known)


def gpu_of(target: str) -> Gpu:
    gpu = load_device(target).gpu
    assert gpu is not None
    return gpu


@pytest.fixture
def limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Limits:
    """Of a package for an Orin NX 16 GB, on a machine that has so much available."""
    package = Package.open(write_unfinished(tmp_path / "a.edge"))

    def found(here: Machine, available: int, *, ignore_budget: bool = False) -> LimitsHere:
        monkeypatch.setattr(module, "machine_memory", lambda: MachineMemory(64 * GB, available))
        assert isinstance(here.gpu, GpuFound)
        return limits_here(package, here, here.gpu.first, ignore_budget=ignore_budget)

    return found


def test_on_its_own_board_the_limits_are_the_profiles_within_what_is_available(limits: Limits) -> None:
    assert limits(machine("orin-nx-16"), 15 * GB) == LimitsHere(gpu_of("orin-nx-16").build, "")
    found = limits(machine("orin-nx-16"), 5 * GB)
    assert found == LimitsHere(BuildLimits(gpu_of("orin-nx-16").build.workspace_bytes, 5 * GB - MARGIN_BYTES), "")


def test_on_another_board_its_own_limits_count_and_that_is_said(limits: Limits) -> None:
    found = limits(machine("orin-nano-8"), 15 * GB)
    assert found.limits == gpu_of("orin-nano-8").build != gpu_of("orin-nx-16").build
    assert found.note == "built within the limits of orin-nano-8, which this device is; the package is for orin-nx-16"


def test_on_a_board_that_nobody_knows_the_target_that_was_chosen_counts(limits: Limits) -> None:
    assert limits(machine("jetson-generic", is_known=False), 15 * GB) == LimitsHere(gpu_of("orin-nx-16").build, "")


def test_a_builder_that_needs_more_is_refused_with_all_three_numbers(limits: Limits) -> None:
    with pytest.raises(BudgetError) as caught:
        limits(machine("orin-nano-8"), GB)
    message = str(caught.value)
    assert "the builder takes about 2.2 GB, 1.0 GB are available, of which it may take 865.8 MB. Close other" in message
    assert limits(machine("orin-nano-8"), GB, ignore_budget=True).limits == gpu_of("orin-nano-8").build


def test_a_builder_is_refused_exactly_where_the_plan_says_that_it_does_not_fit(limits: Limits) -> None:
    gpu = gpu_of("orin-nx-16")
    needed = build_step("tensorrt", gpu, 1700, here=0, there=None, limits=gpu.build).total + MARGIN_BYTES
    limits(machine("orin-nx-16"), needed)
    with pytest.raises(BudgetError):
        limits(machine("orin-nx-16"), needed - 1)
