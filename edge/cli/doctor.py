"""`edge doctor`: what this machine offers, and what is missing for which command or target."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from pathlib import Path

import click

from edge import __version__, env
from edge.cli.build_extra import BUILD_LIBRARIES, INSTALL, missing_libraries
from edge.cli.options import json_option
from edge.cli.tables import format_table
from edge.devices import EngineKind, device_names, load_device
from edge.engine_library import LibraryFound, NoLibrary, find_library
from edge.errors import ExecutorError
from edge.gpu import GpuFound, NoGpu
from edge.machine import Machine, find_machine
from edge.monitors.memory import machine_memory
from edge.units import human_bytes

BUILD_COMMANDS = ("edge export", "edge build", "edge plan of a model that is not built", "edge verify --reference")


@click.command(name="doctor")
@json_option()
def command(as_json: bool) -> None:
    """Show processor, instruction sets, memory, GPU and libraries, and what is missing for which command or target."""
    memory, machine = machine_memory(), find_machine()
    libraries = {name: _version(name) for name in ("numpy", *BUILD_LIBRARIES, "huggingface-hub")}
    builders = {"tensorrt": find_library("tensorrt"), "tensorrt-rtx": find_library("tensorrt-rtx")}
    libraries |= {name: found.version if isinstance(found, LibraryFound) else None for name, found in builders.items()}
    found: dict[str, object] = {
        "edge": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processor": _processor(),
        "threads": len(os.sched_getaffinity(0)),
        "memory_bytes": memory.total,
        "available_bytes": memory.available,
        **machine_row(machine),
        "cache": str(env.cache_folder()),
        "libraries": libraries,
    }
    problems = []
    try:
        from edge.executors.native_core import load_core

        core = load_core()
        found |= {"instruction_sets": core.instruction_sets(), "best_instruction_set": core.best_instruction_set()}
    except ExecutorError as error:
        problems.append(str(error))
    if missing := missing_libraries():
        problems.append(f"{', '.join(BUILD_COMMANDS)}: missing {', '.join(missing)}: {INSTALL}")
    problems += gpu_problems(machine, builders["tensorrt"], builders["tensorrt-rtx"], platform.machine())
    found["problems"] = problems
    if as_json:
        click.echo(json.dumps(found))
        return
    shown = {name: value for name, value in found.items() if value is not None} | {
        "memory_bytes": human_bytes(memory.total),
        "available_bytes": human_bytes(memory.available),
        "libraries": ", ".join(f"{name} {version or 'missing'}" for name, version in libraries.items()),
    }
    del shown["problems"]
    rows = [[name.removesuffix("_bytes").replace("_", " "), _text(value)] for name, value in shown.items()]
    rows += [["problems" if index == 0 else "", problem] for index, problem in enumerate(problems or ["none"])]
    click.echo(format_table(rows))


def machine_row(machine: Machine) -> dict[str, object]:
    """Board and GPU of this machine, and the target that it is; None where there is nothing of the kind."""
    board, gpu = machine.board, machine.gpu
    return {
        "board": None if board is None else board.title,
        "jetpack": None if board is None else board.jetpack or "unknown",
        "jetson_linux": None if board is None else board.jetson_linux or "unknown",
        "power_mode": None if board is None else board.power_mode or "unknown",
        "gpu": f"none: {gpu.reason}" if isinstance(gpu, NoGpu) else str(gpu.first),
        "driver": None if isinstance(gpu, NoGpu) else f"CUDA {gpu.cuda}, {gpu.library}",
        "target": None if machine.target is None else _target_text(machine, machine.target),
    }


def gpu_problems(
    machine: Machine, tensorrt: LibraryFound | NoLibrary, tensorrt_rtx: LibraryFound | NoLibrary, architecture: str
) -> list[str]:
    """What stands in the way of GPU engines here, each with the targets or the step that it concerns, and what mends it."""
    problems = []
    board, gpu = machine.board, machine.gpu
    if isinstance(tensorrt_rtx, NoLibrary) and architecture == "x86_64":  # its wheels are for no other
        targets = ", ".join(_targets("tensorrt-rtx"))
        problems.append(f"edge build for {targets}: {tensorrt_rtx.reason}. {tensorrt_rtx.remedy}")
    if board is not None and board.chip is not None and board.target is None:
        problems.append(f"{board.title}: its chip {board.chip} is no target; engines are built for Orin. Use --target cpu")
    if board is not None and isinstance(gpu, NoGpu):
        problems.append(f"GPU engines on this board: {gpu.reason}. {gpu.remedy}")
    if machine.target is not None and "tensorrt" in load_device(machine.target).engines and isinstance(tensorrt, NoLibrary):
        problems.append(f"edge build --finish, for {machine.target}: {tensorrt.reason}. {tensorrt.remedy}")
    if machine.target is not None and _is_hidden_board(machine):
        problems.append(
            f"this board: its device tree is hidden, so it is taken for {machine.target}. In a container: docker run "
            "--security-opt systempaths=unconfined"
        )
    if (board is None or board.chip is None) and not isinstance(gpu, NoGpu) and machine.target is None:
        problems.append(f"{gpu.first}: engines are not built for sm {gpu.first.sm}. Use --target cpu")
    return problems


def _targets(kind: EngineKind) -> tuple[str, ...]:
    """Those whose first kind of engine is `kind`."""
    return tuple(name for name in device_names() if load_device(name).engines[0] == kind)


def _is_hidden_board(machine: Machine) -> bool:
    """Whether only its driver tells that this is a Jetson, and so not which."""
    chip = None if machine.board is None else machine.board.chip
    return chip is None and isinstance(machine.gpu, GpuFound) and machine.gpu.first.integrated


def _target_text(machine: Machine, target: str) -> str:
    if machine.is_known:
        return target
    what = "board" if machine.board is not None or _is_hidden_board(machine) else "card"
    return f"{target} (this {what} has no profile of its own: its memory is read here, the rest is that of a small {what})"


def _text(value: object) -> str:
    return ", ".join(str(item) for item in value) if isinstance(value, list) else str(value)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Its name where the system tells; aarch64 kernels do not."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"
