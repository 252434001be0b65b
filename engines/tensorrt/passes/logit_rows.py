"""Logits for the rows that are asked for. Owns: the input `logit_rows`. Needs: graph. Never: which rows.

A prefill needs one row of logits and a check of drafted tokens needs several; the head is the largest matrix of a small model.
"""

from __future__ import annotations

from edge.errors import BuildError
from engines.lowering.graph import Graph, Matcher, Node, Value


def take_logit_rows(graph: Graph) -> None:
    """Gathers the hidden rows `logit_rows` int64 [R] in front of the last norm; logits become [..., R, V]."""
    matcher = Matcher(graph)
    logits = next(value for value in graph.outputs if value.name == "logits")
    head = matcher.made_by(matcher.behind("logits", "Mul", "Tanh", "Div"), "linear")
    norm = matcher.made_by(head.inputs[0], "RMSNormalization") if head else None
    if norm is None:
        raise BuildError(f"{graph.path}: has no RMSNormalization and linear in front of its logits. Export the model again")
    axis = len(logits.shape) - 2
    rows = Node("Gather", "/logit_rows/Gather", [norm.inputs[0], "logit_rows"], ["/logit_rows/Gather.out"], {"axis": axis})
    norm.inputs[0] = rows.outputs[0]
    graph.nodes.insert(graph.nodes.index(norm), rows)
    graph.inputs = (*graph.inputs, Value("logit_rows", "int64", ("R",)))
    asked = Value("logits", logits.dtype, (*logits.shape[:axis], "R", logits.shape[-1]))
    graph.outputs = tuple(asked if value is logits else value for value in graph.outputs)
