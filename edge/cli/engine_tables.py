"""What `edge inspect` shows of an engine that TensorRT or TensorRT-RTX builds. Owns: its rows. Needs: engine_record.
Never: a machine."""

from __future__ import annotations

import re
import shlex
from collections import Counter

from edge.engine_library import TITLES
from edge.engine_record import EngineRecord, GraphRecord, version_numbers
from edge.package import Package
from edge.units import human_bytes

_SHORT = 12  # digits of a hash
_LAYER = re.compile(r"\d+")


def engine_rows(package: Package, engine: EngineRecord) -> list[list[str]]:
    """Facts for the table of a package."""
    title, plan = TITLES[engine.kind], engine.plan
    rows = [["engine", f"{title} for sm {engine.sm}, weights {engine.weights_sha256[:_SHORT]}"]]
    if plan is None:
        return [
            *rows,
            ["plan", f"none yet; on the {package.manifest.target}: edge build {shlex.quote(str(package.path))} --finish"],
        ]
    driver = "without a driver" if plan.driver is None else f"with a driver of CUDA {plan.driver}"
    size = human_bytes(package.manifest.files[plan.path].bytes)
    rows.append(["plan", f"{size}, built by {title} {plan.version} {driver}, from graph {plan.graph_sha256[:_SHORT]}"])
    if plan.device is not None:
        rows.append(["runs on", f"{plan.device}, on which it was built, and no other"])
    if plan.plugins:
        rows.append(["plugins", ", ".join(f"{name} {digest[:_SHORT]}" for name, digest in plan.plugins.items())])
    if plan.note:
        rows.append(["note", " ".join(plan.note.split())])
    return rows


def graph_rows(engine: EngineRecord) -> list[list[str]]:
    rows = [
        [
            g.sha256[:_SHORT],
            f"{TITLES[engine.kind]} {g.since} and newer",
            f"{g.attention} KV",
            g.activations,
            g.path or "not kept",
        ]
        for g in engine.graphs
    ]
    return [["graph", "read by", "attention", "activations", "file"], *rows]


def shown_graph(engine: EngineRecord) -> GraphRecord:
    """Of which inputs, outputs and profiles are shown: the plan's, else the one for the newest library."""
    if engine.plan is None:
        return max(engine.graphs, key=lambda graph: version_numbers(graph.since))
    return next(graph for graph in engine.graphs if graph.sha256 == engine.plan.graph_sha256)


def tensor_rows(graph: GraphRecord) -> list[list[str]]:
    """Tensors that differ in nothing but the number of a layer share a row."""
    groups = Counter((t.is_input, _LAYER.sub("N", t.name), t.dtype, t.shape) for t in graph.tensors)
    rows = [
        ["input" if is_input else "output", name, str(count), dtype, _shape(shape)]
        for (is_input, name, dtype, shape), count in groups.items()
    ]
    return [["", "tensor", "count", "dtype", "shape"], *rows]


def profile_rows(graph: GraphRecord) -> list[list[str]]:
    rows = [
        [profile.name, name, _shape(shapes.smallest), _shape(shapes.tuned), _shape(shapes.largest)]
        for profile in graph.profiles
        for name, shapes in profile.shapes.items()
    ]
    return [["profile", "input", "smallest", "tuned for", "largest"], *rows]


def _shape(shape: tuple[int, ...]) -> str:
    """As the profiles say where an axis is not fixed."""
    return " x ".join("?" if size < 0 else str(size) for size in shape) or "scalar"
