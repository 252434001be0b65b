"""Attention with a soft cap, in smaller operators. Owns: that decomposition. Needs: graph. Never: plain Attention.

No TensorRT reads Attention.softcap (onnx-tensorrt docs/operators.md, 10.14 to 11.1: "`softcap` attributes are unsupported"); a
parser that ignored it would give other numbers. The product of queries and keys, the cap and the softmax are float32, as fused
kernels keep them: unscaled scores can leave float16, and scaling float16 queries first would round scores that the cap is to
tell apart. TF32, which has as many digits as float16, loses nothing of the factors.
"""

from __future__ import annotations

import numpy as np

from edge.errors import BuildError
from engines.lowering.graph import VALUE_TYPES, Graph, Matcher, Node

_UNSEEN = -1e30  # far below any capped score, and finite: a row that sees nothing stays free of NaN


def decompose_capped_attention(graph: Graph) -> None:
    """Attention(q [B, Hq, S, D], k, v [B, Hkv, M, D], mask) with softcap c: softmax(where(mask, c tanh(scale q k^T / c))) v."""
    matcher = Matcher(graph)
    values = {value.name: value for value in (*graph.inputs, *graph.outputs)}
    new: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if node.op != "Attention" or not float(node.attributes.get("softcap", 0.0)):
            continue
        scatters = [matcher.made_by(value, "TensorScatter") for value in node.inputs[1:3]]
        cache = values.get(scatters[0].inputs[0]) if scatters[0] else None
        query = matcher.made_by(matcher.behind(node.inputs[0], "RotaryEmbedding", "Transpose", "RMSNormalization"), "Reshape")
        heads = matcher.constant(query.inputs[1]) if query else None
        if cache is None or heads is None or not isinstance(cache.shape[2], int) or len(node.inputs) != 4:
            raise BuildError(
                f"{graph.path}: {node.name}: is not attention over caches of a fixed length. Export the model again"
            )
        new[node.outputs[0]] = _nodes(graph, node, int(heads[2]), cache.dtype, cache.shape)
    graph.expand(new)


def _nodes(graph: Graph, node: Node, heads: int, dtype: str, cache: tuple[int | str, ...]) -> list[Node]:
    kv_heads, context, head_dim = (int(size) for size in cache[1:])
    path, ints, nodes = node.name, graph.ints, list[Node]()
    query, key, value, mask = node.inputs

    def add(op: str, name: str, inputs: list[str], output: str = "", **attributes: object) -> str:
        nodes.append(Node(op, f"{path}/{name}", inputs, [output or f"{path}/{name}.out"], attributes))
        return nodes[-1].outputs[0]

    def scalar(name: str, number: float) -> str:
        return graph.constant(f"{path}/{name}", np.array(number, np.float32))

    # Query heads of one key head are rows of one product: [B, Hkv, Hq / Hkv * S, D].
    query = add("Reshape", "Reshape_heads", [query, ints(0, kv_heads, -1, head_dim)])
    query = add("Cast", "Cast_heads", [query], to=VALUE_TYPES["float32"])
    keys = add("Transpose", "Transpose_keys", [key], perm=[0, 1, 3, 2])
    keys = add("Cast", "Cast_keys", [keys], to=VALUE_TYPES["float32"])
    scores = add("MatMul", "MatMul_scores", [query, keys])
    cap = float(node.attributes["softcap"])
    scores = add("Mul", "Mul_scale", [scores, scalar("scale_over_cap", float(node.attributes["scale"]) / cap)])
    scores = add("Tanh", "Tanh", [scores])
    scores = add("Mul", "Mul_cap", [scores, scalar("cap", cap)])
    scores = add("Reshape", "Reshape_scores", [scores, ints(0, kv_heads, heads // kv_heads, -1, context)])
    seen = add("Unsqueeze", "Unsqueeze_mask", [mask, ints(2)])
    scores = add("Where", "Where", [seen, scores, scalar("unseen", _UNSEEN)])
    shares = add("Softmax", "Softmax", [scores], axis=-1)
    shares = add("Cast", "Cast_shares", [shares], to=VALUE_TYPES[dtype])
    shares = add("Reshape", "Reshape_shares", [shares, ints(0, kv_heads, -1, context)])
    out = add("MatMul", "MatMul_values", [shares, value])
    add("Reshape", "Reshape_out", [out, ints(0, heads, -1, head_dim)], node.outputs[0])
    return nodes
