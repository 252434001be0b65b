"""The profiles of the devices: every number has its source, and none contradicts another."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from edge.board import GENERIC, JETPACKS, MODULES
from edge.build_memory import MARGIN_BYTES
from edge.devices import (
    CHOSEN,
    ESTIMATE,
    MEASURED,
    DeviceProfile,
    Gpu,
    check_sources,
    choose_engine,
    device_names,
    load_device,
    numbers_of,
)
from edge.errors import ConfigError
from edge.machine import CARDS, GENERIC_CARDS

BOARDS = (  # from the largest down
    "orin-agx-64", "orin-agx-industrial", "orin-agx-devkit-32", "orin-agx-32", "orin-nx-16", "orin-nx-8", "orin-nano-8",
    "orin-nano-4",
)  # fmt: skip
JETSONS = (*BOARDS, GENERIC)
WITH_GPU = tuple(name for name in device_names() if load_device(name).gpu is not None)


def gpu_of(name: str) -> Gpu:
    gpu = load_device(name).gpu
    assert gpu is not None
    return gpu


def test_every_device_that_we_name_has_a_profile() -> None:
    assert set(device_names()) == {*JETSONS, *CARDS.values(), *GENERIC_CARDS.values(), "cpu"}
    assert set(MODULES.values()) == set(BOARDS)


@pytest.mark.parametrize("name", device_names())
def test_every_number_has_a_source_that_can_be_looked_up(name: str) -> None:
    profile = load_device(name)
    assert len(list(numbers_of(profile))) >= 2
    for path, _ in numbers_of(profile):
        source = profile.source(path)
        assert source, path
        assert "https://" in source or source.startswith((ESTIMATE, MEASURED, CHOSEN, "half of gpu.")), (path, source)


def test_a_number_without_a_source_is_refused_and_so_is_a_source_of_nothing() -> None:
    profile = load_device("orin-nano-8")
    kept = {path: source for path, source in profile.sources.items() if path != "gpu.modes"}
    with pytest.raises(ConfigError, match=r"^devices/x\.yaml: gpu\.modes\.bandwidth_gbs has no source\. Say under `sources`"):
        check_sources("x", replace(profile, sources=kept))
    with pytest.raises(ConfigError, match=r"^devices/x\.yaml: sources: gpu\.clock: there is no such number\. Remove it"):
        check_sources("x", replace(profile, sources=profile.sources | {"gpu.clock": "measured: nothing"}))


def test_versions_and_compute_capabilities_count_as_numbers_and_titles_do_not() -> None:
    found = dict(numbers_of(load_device("orin-nano-8")))
    assert (found["gpu.sm"], found["gpu.memory_bytes"]) == ("8.7", 8 << 30)
    assert {"tensorrt", "gpu.modes.watts", "gpu.build.workspace_bytes", "defaults.context", "host.base_bytes"} <= set(found)
    assert not {"title", "engines", "gpu.unified", "gpu.modes.name"} & set(found)


def test_an_estimate_is_known_as_one() -> None:
    profile = load_device("orin-nano-8")
    assert profile.is_estimate("gpu.system_bytes")
    assert profile.is_estimate("host.base_bytes")
    assert not profile.is_estimate("gpu.bandwidth_gbs")
    assert not profile.is_estimate("gpu.nothing_of_the_kind")


def test_a_smaller_board_never_has_more() -> None:
    for larger, smaller in itertools.pairwise(map(gpu_of, BOARDS)):
        assert larger.memory_bytes >= smaller.memory_bytes
        assert larger.bandwidth_gbs >= smaller.bandwidth_gbs
        assert larger.sm_count >= smaller.sm_count
        assert larger.build.workspace_bytes >= smaller.build.workspace_bytes
        assert larger.build.tactic_dram_bytes >= smaller.build.tactic_dram_bytes
    memories = [gpu_of(name).memory_bytes for name in BOARDS]
    assert [memory >> 30 for memory in memories] == [64, 64, 32, 32, 16, 8, 8, 4]


def test_profiles_that_stand_for_unknown_devices_say_so() -> None:
    assert {name for name in device_names() if load_device(name).generic} == {GENERIC, *GENERIC_CARDS.values()}


def test_an_unknown_device_is_planned_as_no_larger_than_any_of_its_kind() -> None:
    for generic, others in ((GENERIC, BOARDS), *((g, tuple(CARDS.values())) for g in GENERIC_CARDS.values())):
        for name in others:
            assert gpu_of(generic).usable_bytes <= gpu_of(name).usable_bytes
            assert gpu_of(generic).bandwidth_gbs <= gpu_of(name).bandwidth_gbs


@pytest.mark.parametrize("name", WITH_GPU)
def test_what_a_builder_may_take_fits_beside_the_system(name: str) -> None:
    gpu = gpu_of(name)
    assert 0 < gpu.build.workspace_bytes < gpu.build.tactic_dram_bytes
    assert gpu.build.tactic_dram_bytes <= gpu.usable_bytes - MARGIN_BYTES < gpu.memory_bytes  # a board's counts the workspace


@pytest.mark.parametrize("name", WITH_GPU)
def test_rates_are_what_the_units_do_at_their_clock(name: str) -> None:
    gpu = gpu_of(name)
    assert gpu.int8_tops == pytest.approx(gpu.fp16_tflops * (4 if name.startswith("cuda-") else 2), rel=0.01)
    a_clock = gpu.int8_tops * 1e12 / (gpu.sm_count * gpu.gpu_mhz * 1e6)
    # Dense int8 operations of an SM: 4,096 in Orin, 2,048 in the cards' chips; the A10G is sold with half the rate.
    expected = 4096 if gpu.unified else 1024 if name == "a10g" else 2048
    assert a_clock == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("name", WITH_GPU)
def test_power_modes_stay_within_the_device_and_the_last_reaches_it(name: str) -> None:
    gpu = gpu_of(name)
    for mode in gpu.modes:
        assert mode.sm_count <= gpu.sm_count
        assert mode.gpu_mhz <= gpu.gpu_mhz
        assert mode.bandwidth_gbs <= gpu.bandwidth_gbs
    assert len({mode.name for mode in gpu.modes}) == len(gpu.modes)
    if gpu.modes:
        last = gpu.modes[-1]
        assert (last.sm_count, last.gpu_mhz, last.bandwidth_gbs) == (gpu.sm_count, gpu.gpu_mhz, gpu.bandwidth_gbs)
        assert last.watts is None
        assert [mode.needs_super for mode in gpu.modes] == sorted(mode.needs_super for mode in gpu.modes)


def test_super_modes_are_those_of_the_small_modules() -> None:
    with_super = {name for name in WITH_GPU if any(mode.needs_super for mode in gpu_of(name).modes)}
    assert with_super == {"orin-nx-16", "orin-nx-8", "orin-nano-8", "orin-nano-4"}


@pytest.mark.parametrize("name", JETSONS)
def test_every_board_names_the_tensorrt_of_each_jetpack(name: str) -> None:
    profile = load_device(name)
    old = dict.fromkeys(("6.1", "6.2", "6.2.1", "6.2.2"), "10.3.0")
    assert profile.tensorrt == old | dict.fromkeys(("7.2", "7.2.1"), "10.16.2")
    assert set(profile.tensorrt) <= set(JETPACKS.values())
    assert (profile.engines, gpu_of(name).sm, gpu_of(name).unified) == (("tensorrt",), "8.7", True)


def test_cards_build_without_a_gpu_first() -> None:
    for name in (*CARDS.values(), *GENERIC_CARDS.values()):
        assert load_device(name).engines == ("tensorrt-rtx", "tensorrt")
        assert not gpu_of(name).unified
    assert {sm: gpu_of(name).sm for sm, name in GENERIC_CARDS.items()} == {"8.6": "8.6", "8.9": "8.9"}


def test_an_engine_that_a_target_does_not_run_is_refused() -> None:
    assert choose_engine("a10", None) == "tensorrt-rtx"
    assert choose_engine("a10", "tensorrt") == "tensorrt"
    with pytest.raises(ConfigError, match=r"^--engine tensorrt-rtx: orin-nx-16 runs tensorrt\. Choose of these"):
        choose_engine("orin-nx-16", "tensorrt-rtx")
    with pytest.raises(ConfigError, match=r"no 'orin-nano'\. Did you mean 'orin-nano-\d'\? There are: a10, .*orin-nx-8"):
        choose_engine("orin-nano", None)


def test_a_profile_is_read_once() -> None:
    assert load_device("a10") is load_device("a10")
    assert isinstance(load_device("cpu"), DeviceProfile)
