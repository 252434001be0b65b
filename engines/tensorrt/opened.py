"""A look into a plan on its own GPU, from a process that survives it. Owns: open_plan, the comparison with a record. Needs: a
worker process. Never: TensorRT in this process."""

from __future__ import annotations

from pathlib import Path

from edge.engine_library import TITLES, LibraryKind
from edge.engine_record import GraphRecord
from edge.errors import PackageError
from edge.exit_codes import ending
from engines.tensorrt.child import Child
from engines.tensorrt.job import Failed, Opened, read_message
from engines.tensorrt.library import worker_command
from engines.tensorrt.network import fits


def open_plan(kind: LibraryKind, plan: Path) -> Opened:
    """What the plan says of itself. Only where `find_obstacle` found none. PackageError where it does not open."""
    with Child(worker_command("open", kind), str(plan), 0.0) as child:
        for line in child.lines():
            message = None if line is None else read_message(line)
            if isinstance(message, Opened):
                return message
            if isinstance(message, Failed):
                raise PackageError(message.text)
        code = child.exit_code()
        words = child.last_words()
    how = f"ended ({ending(code)})"
    raise PackageError(f"{plan}: {TITLES[kind]} {how} while it read this{f' ({words})' if words else ''}. Build the plan again")


def find_differences(opened: Opened, graph: GraphRecord) -> tuple[str, ...]:
    """Inputs, outputs and profiles that the plan has otherwise than the manifest says; empty: it is that engine."""
    seen, wanted = ({tensor.name: tensor for tensor in tensors} for tensors in (opened.tensors, graph.tensors))
    differing = [name for name in sorted(wanted.keys() | seen.keys()) if not fits(seen.get(name), wanted.get(name))]
    shapes = [profile.shapes for profile in opened.profiles]
    if shapes != [profile.shapes for profile in graph.profiles]:
        differing.append("profiles")
    return tuple(differing)
