"""From the portable graph to the step list of the CPU engine. Owns: the order of the passes. Needs: passes. Never: weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edge.executors.cpu_plan import PlanStep
from edge.spec import ModelSpec
from engines.cpu.fuse_blocks import fuse_gated, fuse_head, fuse_norms, fuse_residuals
from engines.cpu.schedule import schedule
from engines.lowering.fold_weights import fold_biases, fold_embedding, fold_linears
from engines.lowering.fuse_attention import fuse_attention
from engines.lowering.graph import Graph, read_graph

# Each pass leaves a graph that computes the same; later ones read the nodes that earlier ones made.
PASSES: dict[str, Callable[[Graph], None]] = {
    "fold_linears": fold_linears,
    "fold_biases": fold_biases,
    "fold_embedding": fold_embedding,
    "fuse_attention": fuse_attention,
    "fuse_gated": fuse_gated,
    "fuse_residuals": fuse_residuals,
    "fuse_head": fuse_head,
    "fuse_norms": fuse_norms,
}


def lower(path: Path, spec: ModelSpec) -> tuple[tuple[PlanStep, ...], Graph]:
    """Steps of the portable ONNX at `path`, and the graph that they came from (its constants hold inv_freq).

    BuildError names the first node that no pass recognised.
    """
    graph = read_graph(path)
    for apply in PASSES.values():
        apply(graph)
    return schedule(graph, spec), graph
