"""Rotary, cache and attention of a layer become one node over pages. Owns: `attend` and `project`. Needs: graph. Never: pages.

project  inputs [x], attributes weights (q, k, v) and biases (the same, or ())
attend   inputs [project], attributes inv_freq, window, scale, soft_cap, heads, kv_heads, q_norm, k_norm, epsilon, layer
"""

from __future__ import annotations

from dataclasses import dataclass

from engines.lowering.graph import Graph, Matcher, Node


@dataclass(frozen=True, slots=True)
class _Head:
    """One of query, key and value, read back from the Attention node to its linear."""

    linear: Node
    heads: int
    norm: str  # initializer of the norm over head_dim, "" where there is none
    epsilon: float


def fuse_attention(graph: Graph) -> None:
    """Attention(rotary(q), TensorScatter(rotary(k)), TensorScatter(v), mask) and its reshapes -> project, attend."""
    matcher = Matcher(graph)
    new: dict[str, Node] = {}
    projections: dict[str, Node] = {}  # by the value that the attend behind it makes
    for node in graph.nodes:
        attention = _attention_of(matcher, node)
        if attention is None:
            continue
        query = _rotated(matcher, attention.inputs[0])
        key_scatter, value_scatter = (matcher.made_by(value, "TensorScatter") for value in attention.inputs[1:3])
        window = _window(matcher, attention.inputs[3])
        if query is None or key_scatter is None or value_scatter is None or window is None:
            continue
        key, value = _rotated(matcher, key_scatter.inputs[1]), _head(matcher, value_scatter.inputs[1])
        past = key_scatter.inputs[0].split(".")
        inputs = {part.linear.inputs[0] for part in (query[0], key[0], value) if part} if key and value else set()
        if key is None or value is None or len(inputs) != 1 or query[1] != key[1] or past[0] != "past_key":
            continue
        if int(attention.attributes.get("is_causal", 0)) or len(attention.inputs) != 4:
            continue
        linears = [part.linear for part in (query[0], key[0], value)]
        biases = tuple(linear.attributes["bias"] for linear in linears if "bias" in linear.attributes)
        if len(biases) not in (0, len(linears)):
            continue
        projected = f"{node.name}/project"
        own = {"weights": tuple(linear.attributes["weight"] for linear in linears), "biases": biases}
        projections[node.outputs[0]] = Node("project", projected, list(inputs), [projected], own)
        attributes = {
            "inv_freq": query[1],
            "window": window,
            "scale": float(attention.attributes["scale"]),
            "soft_cap": float(attention.attributes.get("softcap", 0.0)),
            "heads": query[0].heads,
            "kv_heads": key[0].heads,
            "q_norm": query[0].norm,
            "k_norm": key[0].norm,
            "epsilon": query[0].epsilon,
            "layer": int(past[1]),
        }
        new[node.outputs[0]] = Node("attend", attention.name, [projected], node.outputs, attributes)
    nodes = []
    for node in graph.nodes:
        if node.outputs[0] in projections:
            nodes.append(projections[node.outputs[0]])
        nodes.append(node)
    graph.nodes = nodes
    # Caches become pages: the past_* inputs, present_* outputs, masks and positions go.
    graph.outputs = tuple(value for value in graph.outputs if value.name == "logits")
    graph.replace(new)


def _attention_of(matcher: Matcher, reshape: Node) -> Node | None:
    """The Attention behind the Reshape that joins its heads."""
    if reshape.op != "Reshape":
        return None
    transpose = matcher.made_by(reshape.inputs[0], "Transpose")
    return matcher.made_by(transpose.inputs[0], "Attention") if transpose and _swaps_heads(transpose) else None


def _rotated(matcher: Matcher, value: str) -> tuple[_Head, str] | None:
    """(head, inv_freq constant) of RotaryEmbedding(head, Cos(angles), Sin(angles)) in the half form."""
    rotary = matcher.made_by(value, "RotaryEmbedding")
    if rotary is None or int(rotary.attributes.get("interleaved", 0)) or len(rotary.inputs) != 3:
        return None
    cosines = matcher.made_by(matcher.behind(rotary.inputs[1], "Cast"), "Cos")
    sines = matcher.made_by(matcher.behind(rotary.inputs[2], "Cast"), "Sin")
    if cosines is None or sines is None or cosines.inputs[0] != sines.inputs[0]:
        return None
    angles = matcher.made_by(cosines.inputs[0], "Mul")
    if angles is None or matcher.behind(angles.inputs[0], "Unsqueeze", "Cast") != "position_ids":
        return None
    head = _head(matcher, rotary.inputs[0])
    return (head, angles.inputs[1]) if head and angles.inputs[1] in matcher.graph.constants else None


def _head(matcher: Matcher, value: str) -> _Head | None:
    """Transpose([RMSNormalization](Reshape(linear)))."""
    transpose = matcher.made_by(value, "Transpose")
    if transpose is None or not _swaps_heads(transpose):
        return None
    norm = matcher.made_by(transpose.inputs[0], "RMSNormalization")
    reshape = matcher.made_by(norm.inputs[0] if norm else transpose.inputs[0], "Reshape")
    linear = matcher.made_by(reshape.inputs[0], "linear") if reshape else None
    shape = matcher.constant(reshape.inputs[1]) if reshape else None
    if linear is None or shape is None or len(shape) != 4:
        return None
    epsilon = float(norm.attributes.get("epsilon", 1e-5)) if norm else 0.0
    return _Head(linear, int(shape[2]), norm.inputs[1] if norm else "", epsilon)


def _swaps_heads(transpose: Node) -> bool:
    return list(transpose.attributes.get("perm", [])) == [0, 2, 1, 3]


def _window(matcher: Matcher, mask: str) -> int | None:
    """0 for what is reached, attention_mask and j <= position; W for what is reached and j > position - W."""
    both = matcher.made_by(mask, "And")
    if both is None:
        return None
    if both.inputs[0] == "attention_mask":
        reached = matcher.made_by(both.inputs[1], "LessOrEqual")
        return 0 if reached and _are_positions(matcher, reached.inputs[1]) else None
    inside = matcher.made_by(both.inputs[1], "Greater")
    behind = matcher.made_by(inside.inputs[1], "Sub") if inside else None
    width = matcher.constant(behind.inputs[1]) if behind else None
    if behind is None or width is None or not _are_positions(matcher, behind.inputs[0]):
        return None
    return int(width.reshape(-1)[0]) if _window(matcher, both.inputs[0]) == 0 else None


def _are_positions(matcher: Matcher, value: str) -> bool:
    return matcher.behind(value, "Unsqueeze") == "position_ids"
