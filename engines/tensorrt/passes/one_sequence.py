"""Engines with linear KV carry one sequence. Owns: B = 1. Needs: graph. Never: S, M."""

from __future__ import annotations

from dataclasses import replace

from engines.lowering.graph import Graph, Value


def carry_one_sequence(graph: Graph) -> None:
    """Writes 1 for B in the shapes of inputs and outputs: what is fixed needs no profile, and kernels are chosen for it."""
    graph.inputs = tuple(_fixed(value) for value in graph.inputs)
    graph.outputs = tuple(_fixed(value) for value in graph.outputs)


def _fixed(value: Value) -> Value:
    return replace(value, shape=tuple(1 if size == "B" else size for size in value.shape))
