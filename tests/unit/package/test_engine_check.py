"""Which engine runs on which machine: every refusal with its whole message, and that none is forgotten."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from engine_packages import (
    finish,
    manifest_of,
    rtx_engine,
    rtx_files,
    unfinished_engine,
    unfinished_files,
)
from hypothesis import given
from hypothesis import strategies as st

from edge.engine_check import check_engine, find_obstacle
from edge.engine_library import LibraryFound, NoLibrary
from edge.errors import EdgeError, PackageError
from edge.gpu import GpuDevice, GpuFound, NoGpu
from edge.machine import Machine
from edge.manifest import Manifest, from_json

PLUGIN, DIGEST = "edge::PagedAttention", "12" * 32
REBUILD = "edge build tiny.gguf --tier int4 --target"


def machine_of(sm: str, name: str, cuda: str, target: str | None) -> Machine:
    gpu = GpuDevice(name, sm, 24 << 30, integrated=name == "Orin")
    return Machine(None, GpuFound("libcuda.so.1", cuda, (gpu,)), target, True)


A10 = machine_of("8.6", "NVIDIA A10", "13.0", "a10")
ORIN = machine_of("8.7", "Orin", "13.2", "orin-nx-16")
H100 = machine_of("9.0", "NVIDIA H100", "13.0", None)
NOBODY = Machine(None, NoGpu("no NVIDIA driver (libcuda.so.1)", "Install it"), None, False)
RTX = LibraryFound("tensorrt-rtx", "1.7.1.116", 13)
TENSORRT = LibraryFound("tensorrt", "10.16.2.10", 13)


def manifest(change: Callable[[dict[str, Any]], Any] = lambda m: None) -> Manifest:
    """Of a package for an A10."""
    plain = manifest_of("a10", rtx_engine(), rtx_files())
    change(plain)
    return from_json(json.dumps(plain), "here")


def orin_manifest(change: Callable[[dict[str, Any]], Any] = lambda m: None) -> Manifest:
    """Of a finished package for an Orin whose plan calls a plugin."""
    plain = manifest_of("orin-nx-16", unfinished_engine(), unfinished_files())
    finish(plain)
    plain["engine"]["plan"]["plugins"] = {PLUGIN: DIGEST}
    change(plain)
    return from_json(json.dumps(plain), "here")


def refusal(built: Manifest, machine: Machine, library: LibraryFound | NoLibrary, plugins: dict[str, str] | None = None) -> str:
    with pytest.raises(PackageError) as caught:
        check_engine(built, "my models/a.edge", machine, library, {} if plugins is None else plugins)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix("my models/a.edge: ")


def test_an_engine_on_its_own_machine_is_let_pass() -> None:
    check_engine(manifest(), "a.edge", A10, RTX, {})
    check_engine(orin_manifest(), "a.edge", ORIN, TENSORRT, {PLUGIN: DIGEST})


def test_an_unfinished_engine_is_sent_to_its_device_wherever_it_is() -> None:
    built = orin_manifest(lambda m: m["engine"].update(plan=None))
    for machine in (ORIN, A10, NOBODY):
        assert refusal(built, machine, TENSORRT) == (
            "not finished: its device makes the plan. On the orin-nx-16: edge build 'my models/a.edge' --finish"
        )


def test_a_machine_without_a_gpu_is_told_why_and_what_would_run() -> None:
    assert refusal(manifest(), NOBODY, RTX) == (
        "needs a GPU of sm 8.6 (a10), and here is none: no NVIDIA driver (libcuda.so.1). Install it; "
        f"or build for the CPU: {REBUILD} cpu"
    )


def test_a_gpu_that_has_a_profile_gets_the_command_for_it() -> None:
    assert refusal(manifest(), ORIN, RTX) == (
        f"built for sm 8.6 (a10), this GPU is sm 8.7 (Orin). Rebuild for it: {REBUILD} orin-nx-16"
    )


def test_a_gpu_without_a_profile_is_told_what_runs() -> None:
    assert refusal(manifest(), H100, RTX) == (
        f"built for sm 8.6 (a10), this GPU is sm 9.0 (NVIDIA H100). No device profile has that; what runs here: {REBUILD} cpu"
    )


def test_a_driver_too_old_for_the_library_is_refused() -> None:
    old = machine_of("8.6", "NVIDIA A10", "12.8", "a10")
    assert refusal(manifest(), old, RTX) == (
        "TensorRT-RTX 1.7.1.116 is made for CUDA 13, the driver here knows CUDA 12.8. "
        "Update the driver (580 or newer; on a Jetson JetPack 7)"
    )


def test_a_driver_of_the_same_major_version_is_new_enough_for_a_plan_built_without_one() -> None:
    check_engine(manifest(), "a.edge", machine_of("8.6", "NVIDIA A10", "13.0", "a10"), RTX, {})


@pytest.mark.parametrize("cuda", ["13.0", "13.2", "14.0"])
def test_any_driver_that_the_library_runs_with_runs_a_plan_whichever_built_it(cuda: str) -> None:
    check_engine(orin_manifest(), "a.edge", machine_of("8.7", "Orin", cuda, "orin-nx-16"), TENSORRT, {PLUGIN: DIGEST})


def test_a_plan_of_another_board_with_the_same_capability_is_refused_with_both() -> None:
    assert refusal(orin_manifest(), machine_of("8.7", "Orin", "13.2", "orin-nano-4"), TENSORRT) == (
        "its plan was built on orin-nx-16, here is orin-nano-4, and a plan of TensorRT runs where it was built only. "
        "Build the plan again: edge build 'my models/a.edge' --finish --force"
    )


def test_a_plan_of_tensorrt_is_bound_to_the_card_and_one_of_tensorrt_rtx_to_its_capability() -> None:
    def on_an_a10(m: dict[str, Any]) -> None:
        m["engine"] |= {"kind": "tensorrt", "plan": m["engine"]["plan"] | {"version": "10.16.2.10", "device": "NVIDIA A10"}}

    check_engine(manifest(on_an_a10), "a.edge", A10, TENSORRT, {})
    other = machine_of("8.6", "NVIDIA GeForce RTX 3050", "13.0", "cuda-sm86")
    assert "built on NVIDIA A10, here is NVIDIA GeForce RTX 3050" in refusal(manifest(on_an_a10), other, TENSORRT)
    check_engine(manifest(), "a.edge", other, RTX, {})


def test_a_missing_library_is_named_with_the_version_to_install() -> None:
    none = NoLibrary("TensorRT-RTX is not installed for python", "Install it")
    assert refusal(manifest(), A10, none) == (
        "built by TensorRT-RTX 1.7.1.116, and TensorRT-RTX is not installed for python. "
        "Install it: pip install tensorrt-rtx-cu13==1.7.1.116"
    )
    none = NoLibrary("TensorRT is not installed for python", "On a Jetson: sudo apt install tensorrt")
    assert refusal(orin_manifest(), ORIN, none) == (
        "built by TensorRT 10.16.2.10, and TensorRT is not installed for python. On a Jetson: sudo apt install tensorrt"
    )


def test_another_version_of_tensorrt_rtx_is_refused_with_both() -> None:
    assert refusal(manifest(), A10, dataclasses.replace(RTX, version="1.7.2.5")) == (
        "built by TensorRT-RTX 1.7.1.116, here is 1.7.2.5, and each reads its own plans only. "
        f"Install that one: pip install tensorrt-rtx-cu13==1.7.1.116; or build the plan again: {REBUILD} a10 "
        "--engine tensorrt-rtx --ctx-size 128"
    )


def test_another_version_of_tensorrt_is_refused_with_both() -> None:
    assert refusal(orin_manifest(), ORIN, dataclasses.replace(TENSORRT, version="10.16.2.11")) == (
        "built by TensorRT 10.16.2.10, here is 10.16.2.11, and each reads its own plans only. "
        "Build the plan again: edge build 'my models/a.edge' --finish --force"
    )


def test_a_plugin_that_is_missing_or_another_is_refused() -> None:
    assert refusal(orin_manifest(), ORIN, TENSORRT) == (
        "its plan calls the plugin edge::PagedAttention with SHA-256 1212121212121212, which this version of edge-zero does "
        f"not have. Update it: git pull && ./install.sh; or build for the CPU: {REBUILD} cpu"
    )
    assert refusal(orin_manifest(), ORIN, TENSORRT, {PLUGIN: "34" * 32}) == (
        "its plan calls the plugin edge::PagedAttention with SHA-256 1212121212121212, this version of edge-zero has "
        "3434343434343434. Build the plan again: edge build 'my models/a.edge' --finish --force"
    )


CAPABILITIES = st.sampled_from(["7.5", "8.0", "8.6", "8.7", "8.9", "12.0"])
VERSIONS = st.tuples(st.just(10), st.sampled_from([3, 16]), st.integers(0, 2), st.integers(0, 2)).map(
    lambda numbers: ".".join(map(str, numbers))
)
DIGESTS = st.sampled_from(["12" * 32, "34" * 32])
DRIVERS = st.sampled_from(["11.8", "12.6", "13.0", "13.2"])
DEVICES = st.sampled_from(["orin-nx-16", "orin-nano-4", "NVIDIA A10"])


@given(
    built=st.tuples(CAPABILITIES, DEVICES, VERSIONS, DIGESTS, DRIVERS),
    here=st.tuples(CAPABILITIES, DEVICES, VERSIONS, DIGESTS, DRIVERS),
    has=st.sampled_from(["gpu and library", "gpu", "library"]),
)
def test_nothing_passes_that_differs_anywhere(built: tuple[str, ...], here: tuple[str, ...], has: str) -> None:
    sm, device, version, digest, driver = built
    here_sm, here_device, here_version, here_digest, here_driver = here
    machine = machine_of(here_sm, here_device, here_driver, None) if "gpu" in has else NOBODY
    library = LibraryFound("tensorrt", here_version, 12) if "library" in has else NoLibrary("it is not installed", "Install it")

    def change(m: dict[str, Any]) -> None:
        m["engine"]["sm"] = sm
        m["engine"]["plan"] |= {"version": version, "driver": driver, "device": device, "plugins": {PLUGIN: digest}}

    obstacle = find_obstacle(orin_manifest(change), "a.edge", machine, library, {PLUGIN: here_digest})
    is_same = (sm, device, version, digest) == (here_sm, here_device, here_version, here_digest)
    assert (obstacle is None) == (has == "gpu and library" and is_same and not here_driver.startswith("11."))


@given(st.lists(st.sampled_from(["kind", "sm", "version", "driver", "device", "plugins"]), max_size=3), st.data())
def test_a_refusal_is_always_one_line_of_ours(keys: list[str], data: st.DataObject) -> None:
    text = st.text(max_size=30)

    def change(m: dict[str, Any]) -> None:
        for key in keys:
            where = m["engine"] if key in ("kind", "sm") else m["engine"]["plan"]
            where[key] = data.draw(st.dictionaries(text, text, max_size=2) if key == "plugins" else text)

    line = ""
    try:
        check_engine(orin_manifest(change), "a.edge", ORIN, TENSORRT, {PLUGIN: DIGEST})
    except EdgeError as error:
        line = str(error)
    assert len(line.splitlines()) <= 1
