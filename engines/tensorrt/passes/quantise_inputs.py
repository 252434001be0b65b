"""int8 products: QuantizeLinear and DequantizeLinear around inputs of the layers' matrices. Owns: those nodes. Needs: scales.
Never: how a scale is found.

TensorRT multiplies in int8 where both sides of a MatMul come from DequantizeLinear of int8 (W8A8, explicit quantisation). The
head stays weight-only: its error goes straight into the logits.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from engines.lowering.graph import Graph, Node

_HEAD = ("embed.weight", "head.weight")


def quantised_inputs(graph: Graph, int8: frozenset[str]) -> tuple[str, ...]:
    """Values that `linear` nodes with a weight of `int8` (canonical names) read, apart from the head's, in order."""
    return tuple(dict.fromkeys(node.inputs[0] for node in graph.nodes if _is_quantised(node, int8)))


def quantise_inputs(graph: Graph, int8: frozenset[str], scales: Mapping[str, float]) -> None:
    """x -> QuantizeLinear, DequantizeLinear with the scale of x, per tensor, in front of those `linear` nodes."""
    dtype = next(value for value in graph.outputs if value.name == "logits").dtype
    zero = graph.constant("int8.0", np.array(0, np.int8))
    new: dict[str, list[Node]] = {}
    rounded: dict[str, str] = {}
    for node in graph.nodes:
        if not _is_quantised(node, int8):
            continue
        x, parts = node.inputs[0], list[Node]()
        if x not in rounded:
            path = f"{x.rsplit('/', 1)[0]}/int8"
            scale = graph.scalar(f"{path}/scale", scales[x], dtype)
            parts.append(Node("QuantizeLinear", f"{path}/QuantizeLinear", [x, scale, zero], [f"{path}/QuantizeLinear.out"]))
            back = [f"{path}/QuantizeLinear.out", scale, zero]
            parts.append(Node("DequantizeLinear", f"{path}/DequantizeLinear", back, [f"{path}/DequantizeLinear.out"]))
            rounded[x] = parts[-1].outputs[0]
        node.inputs[0] = rounded[x]
        new[node.outputs[0]] = [*parts, node]
    graph.expand(new)


def _is_quantised(node: Node, int8: frozenset[str]) -> bool:
    return node.op == "linear" and node.attributes["weight"] in int8 and node.attributes["weight"] not in _HEAD
