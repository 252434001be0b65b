"""`edge doctor`: what this machine offers, and what is missing for which command."""

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
from edge.errors import ExecutorError
from edge.monitors.memory import machine_memory
from edge.units import human_bytes

BUILD_COMMANDS = ("edge export", "edge build", "edge plan of a model that is not built", "edge verify --reference")


@click.command(name="doctor")
@json_option()
def command(as_json: bool) -> None:
    """Show processor, instruction sets, memory and libraries, and what is missing for which command."""
    memory = machine_memory()
    libraries = {name: _version(name) for name in ("numpy", *BUILD_LIBRARIES, "huggingface-hub")}
    found: dict[str, object] = {
        "edge": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processor": _processor(),
        "threads": len(os.sched_getaffinity(0)),
        "memory_bytes": memory.total,
        "available_bytes": memory.available,
        "cache": str(env.cache_folder()),
        "libraries": libraries,
    }
    problems = []
    try:
        from edge.executors.native import load_core

        core = load_core()
        found |= {"instruction_sets": core.instruction_sets(), "best_instruction_set": core.best_instruction_set()}
    except ExecutorError as error:
        problems.append(str(error))
    if missing := missing_libraries():
        problems.append(f"{', '.join(BUILD_COMMANDS)}: missing {', '.join(missing)}: {INSTALL}")
    found["problems"] = problems
    if as_json:
        click.echo(json.dumps(found))
        return
    shown = found | {
        "memory_bytes": human_bytes(memory.total),
        "available_bytes": human_bytes(memory.available),
        "libraries": ", ".join(f"{name} {version or 'missing'}" for name, version in libraries.items()),
        "problems": "; ".join(problems) or "none",
    }
    rows = [[name.removesuffix("_bytes").replace("_", " "), _text(value)] for name, value in shown.items()]
    click.echo(format_table(rows))


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
