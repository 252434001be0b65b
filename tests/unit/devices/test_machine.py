"""Which target this machine is, and what it has available now."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_board import lay_board

from edge import machine
from edge.devices import Gpu, load_device
from edge.gpu import GpuDevice, GpuFound, NoGpu
from edge.machine import DeviceNow, device_now, find_machine

NOTHING = NoGpu("no NVIDIA driver (libcuda.so.1)", "Install it")


def card(name: str, sm: str, memory_bytes: int = 24 << 30) -> GpuFound:
    return GpuFound("libcuda.so.1", "13.0", (GpuDevice(name, sm, memory_bytes, False),))


ORIN = GpuFound("libcuda.so.1", "12.6", (GpuDevice("Orin", "8.7", 7 << 30, True),))


def see(monkeypatch: pytest.MonkeyPatch, gpu: GpuFound | NoGpu) -> None:
    monkeypatch.setattr(machine, "probe_gpu", lambda: gpu)


def gpu_of(name: str) -> Gpu:
    gpu = load_device(name).gpu
    assert gpu is not None
    return gpu


@pytest.mark.parametrize(
    ("gpu", "target", "known"),
    [
        (card("NVIDIA A10", "8.6"), "a10", True),
        (card("NVIDIA A10G", "8.6"), "a10g", True),
        (card("NVIDIA L4", "8.9"), "l4", True),
        (card("NVIDIA GeForce RTX 3060", "8.6"), "cuda-sm86", False),
        (card("NVIDIA GeForce RTX 4090", "8.9"), "cuda-sm89", False),
        (card("NVIDIA H200", "9.0"), None, False),
        (NOTHING, None, False),
    ],
)
def test_a_card_is_known_by_its_name_or_stands_for_its_capability(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: GpuFound | NoGpu, target: str | None, known: bool
) -> None:
    see(monkeypatch, gpu)
    found = find_machine(tmp_path)
    assert (found.board, found.gpu, found.target, found.is_known) == (None, gpu, target, known)


@pytest.mark.parametrize("gpu", [ORIN, NOTHING])
def test_a_board_is_what_its_files_say_with_or_without_a_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: GpuFound | NoGpu
) -> None:
    see(monkeypatch, gpu)
    found = find_machine(lay_board(tmp_path))
    assert (found.target, found.is_known, found.gpu) == ("orin-nano-8", True, gpu)


@pytest.mark.parametrize("tells", ["a release", "nothing"])
def test_an_orin_in_a_container_that_hides_the_device_tree_is_a_board_of_which_nobody_knows_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tells: str
) -> None:
    monkeypatch.setattr(machine.os, "uname", lambda: SimpleNamespace(machine="aarch64"))
    see(monkeypatch, ORIN)
    lay_board(tmp_path, release="# R36 (release), REVISION: 4.3" if tells == "a release" else None, available_kb=5_000_000)
    shutil.rmtree(tmp_path / "proc/device-tree")
    found = find_machine(tmp_path)
    assert (found.target, found.is_known, found.device) == ("jetson-generic", False, "jetson-generic")
    assert (found.board is not None) == (tells == "a release")
    now = device_now("jetson-generic", gpu_of("jetson-generic"), tmp_path)
    assert now is not None and now.memory == 5_000_000 * 1024
    see(monkeypatch, NOTHING)
    assert (find_machine(tmp_path).target, find_machine(tmp_path).device) == (None, None)
    assert device_now("jetson-generic", gpu_of("jetson-generic"), tmp_path) is None


def test_another_chip_in_such_a_container_is_no_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, GpuFound("libcuda.so.1", "13.0", (GpuDevice("NVIDIA Thor", "11.0", 128 << 30, True),)))
    lay_board(tmp_path)
    shutil.rmtree(tmp_path / "proc/device-tree")
    found = find_machine(tmp_path)
    assert (found.target, found.device) == (None, "NVIDIA Thor")


def test_a_pc_is_not_asked_for_its_driver_to_plan_for_a_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.os, "uname", lambda: SimpleNamespace(machine="x86_64"))
    monkeypatch.delattr(machine, "probe_gpu")
    assert device_now("orin-nano-8", gpu_of("orin-nano-8"), tmp_path) is None


def test_plans_are_bound_to_a_board_by_its_target_and_to_a_card_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    see(monkeypatch, ORIN)
    assert find_machine(lay_board(tmp_path / "board")).device == "orin-nano-8"
    see(monkeypatch, card("NVIDIA GeForce RTX 3060", "8.6"))
    assert find_machine(tmp_path / "card").device == "NVIDIA GeForce RTX 3060"


def test_the_board_itself_is_planned_with_what_it_has_available(tmp_path: Path) -> None:
    lay_board(tmp_path, available_kb=5_000_000)
    available = 5_000_000 * 1024
    assert device_now("orin-nano-8", gpu_of("orin-nano-8"), tmp_path) == DeviceNow(
        available, available, "MemAvailable of this machine"
    )
    assert device_now("orin-nx-16", gpu_of("orin-nx-16"), tmp_path) is None


def test_the_card_itself_is_planned_with_its_own_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_board(tmp_path, compatible=("a,pc",), available_kb=1_000_000)  # for its meminfo
    see(monkeypatch, card("NVIDIA A10", "8.6", 23 << 30))
    now = device_now("a10", gpu_of("a10"), tmp_path)
    assert now == DeviceNow(23 << 30, 1_000_000 * 1024, "memory of the NVIDIA A10 in this machine, in use or not")
    assert device_now("l4", gpu_of("l4"), tmp_path) is None
    see(monkeypatch, NOTHING)
    assert device_now("a10", gpu_of("a10"), tmp_path) is None
