"""install.sh on machines that are no Jetson: with a card, without one, x86-64 and aarch64."""

from __future__ import annotations

import pytest
from fake_machine import FakeMachine, pip_words

from edge.machine import CARDS


@pytest.mark.parametrize(("name", "target"), [*CARDS.items(), ("NVIDIA GeForce RTX 4090", "TARGET (edge doctor says which)")])
def test_a_cuda_host_is_told_how_to_build_for_its_card(machine: FakeMachine, name: str, target: str) -> None:
    machine.card(name)
    machine.cuda("13.0")
    lines = machine.dry()
    assert lines == [
        f"==> Machine: x86_64 with {name}, driver 580.95.05",
        f"    CUDA 13.0: {machine.root}/usr/local/cuda/bin/nvcc",
        "    No TensorRT in the system's packages.",
        f"==> Python 3.11: {machine.bin}/python3",
        "==> Virtual environment .venv, so that nothing outside this folder changes",
        f"    would run: {machine.bin}/python3 -m venv .venv",
        "==> edge-zero[build] into it: compiles the native core, a minute or two",
        "    would run: .venv/bin/python -m pip install --quiet --quiet --disable-pip-version-check --prefer-binary .[build]",
        f"==> pycuda, for GPU memory and launches: compiled with {machine.root}/usr/local/cuda/bin/nvcc, several minutes",
        "    would run: .venv/bin/python -m pip install pycuda>=2024.1",
        "==> Next:",
        "    .venv/bin/edge doctor: what this machine offers, and what it is called as a target",
        "    .venv/bin/edge build MODEL --tier int4 --target cpu: an engine for the CPU",
        f"    ./install.sh --with rtx (a download of 370 MB), then .venv/bin/edge build MODEL --tier int4 --target {target}",
        "    for engines of the full TensorRT instead (--engine tensorrt): .venv/bin/python -m pip install tensorrt-cu13",
    ]
    lines = machine.dry("--with", "rtx,server")
    assert pip_words(lines)[0] == ".[build,rtx,server]"
    assert lines[-2] == (
        f"    .venv/bin/edge build MODEL --tier int4 --target {target}: an engine of TensorRT-RTX, built without a GPU"
    )


def test_an_older_driver_writes_another_line_and_takes_an_older_tensorrt(machine: FakeMachine) -> None:
    machine.card()
    machine.write(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n",
    )
    lines = machine.dry()
    assert lines[0] == "==> Machine: x86_64 with NVIDIA A10, driver 535.104.05"
    assert lines[-1].endswith(" -m pip install tensorrt-cu12")  # CUDA 13 needs driver 580


def test_a_cuda_hosts_tensorrt_is_seen_where_its_python_can_build(machine: FakeMachine) -> None:
    machine.card()
    machine.system_python("3.12")
    machine.packages(python3_libnvinfer="10.16.1.11-1+cuda13.2")
    machine.tensorrt("10.16.1.11", "3.12")
    lines = machine.dry()
    assert f"    would run: {machine.root}/usr/bin/python3.12 -m venv --system-site-packages .venv" in lines
    assert pip_words(lines)[0] == ".[build] numpy>=1.26,<2"
    assert "full TensorRT" not in lines[-1]


def test_a_cuda_hosts_tensorrt_for_an_older_python_is_left_with_the_way_to_use_it(machine: FakeMachine) -> None:
    machine.card()
    system = machine.python("3.10", machine.root / "usr/bin/python3.10")
    machine.tensorrt("10.16.1.11", "3.10")
    lines = machine.dry()
    assert f"==> Python 3.11: {machine.bin}/python3" in lines
    assert lines[-1].endswith(" -m pip install tensorrt-cu13")  # the other way
    assert f"    with it here: PYTHON={system} ./install.sh" in lines
    lines = machine.dry(PYTHON=str(system))
    assert f"    would run: {system} -m venv --system-site-packages .venv" in lines
    assert pip_words(lines)[0] == ". numpy>=1.26,<2"


@pytest.mark.parametrize("python", ["3.10", "3.12"])
def test_a_cuda_hosts_tensorrt_that_is_too_old_is_left_aside(machine: FakeMachine, python: str) -> None:
    machine.card()
    machine.python(python, machine.root / f"usr/bin/python{python}")
    machine.tensorrt("10.14.1.48", python)
    lines = machine.dry()
    assert lines[3:5] == [
        f"==> Python 3.11: {machine.bin}/python3",
        "    The system's TensorRT is left aside: EdgeZero needs 10.15 or newer.",
    ]
    assert not any("--system-site-packages" in line for line in lines)
    assert lines[-1].endswith(" -m pip install tensorrt-cu13")


@pytest.mark.parametrize("header", ["cuda.h", "curand.h"])
def test_pycuda_is_left_out_where_a_header_is_missing(machine: FakeMachine, header: str) -> None:
    machine.card()
    machine.cuda("12.6", headers=tuple({"cuda.h", "curand.h"} - {header}))
    lines = machine.dry()
    assert (
        f"==> pycuda: left out, because compiling it needs {machine.root}/usr/local/cuda/include/{header}. "
        "Once that is installed, run this again" in lines
    )
    assert pip_words(lines) == [".[build]"]


@pytest.mark.parametrize("processor", ["x86_64", "aarch64"])
def test_a_machine_without_a_gpu_gets_what_builds_for_the_cpu(machine: FakeMachine, processor: str) -> None:
    machine.processor(processor)
    machine.cuda("13.0")  # without a driver it is of no use
    lines = machine.dry()
    assert lines[:3] == [
        f"==> Machine: {processor}",
        f"==> Python 3.11: {machine.bin}/python3",
        "==> Virtual environment .venv, so that nothing outside this folder changes",
    ]
    assert pip_words(lines) == [".[build]"]
    assert ("rtx" in lines[-1]) == (processor == "x86_64")


def test_a_gpu_of_an_arm_server_has_no_target(machine: FakeMachine) -> None:
    machine.card("NVIDIA GB10")
    machine.processor("aarch64")
    lines = machine.dry()
    assert lines[:2] == [
        "==> Machine: aarch64 with NVIDIA GB10",
        "    EdgeZero has no target for this GPU: only CPU engines will work here.",
    ]


def test_rtx_is_refused_where_it_cannot_be(machine: FakeMachine) -> None:
    machine.jetpack_7()
    done = machine.run("--with", "rtx", "--dry-run")
    assert done.returncode == 1
    assert done.stderr.startswith("install.sh: --with rtx: tensorrt-rtx-cu13 is for x86-64 alone; on aarch64")
    machine.processor("x86_64")
    done = machine.run("--with", "rtx", "--dry-run", PYTHON=str(machine.python("3.10", machine.state / "python3.10")))
    assert done.returncode == 1
    assert done.stderr.startswith("install.sh: --with rtx builds engines, which needs Python 3.11 or newer; this is 3.10")
