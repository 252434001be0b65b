"""Norms, gates and residuals join the products beside them. Owns: `gated`, `add`, `head`. Needs: graph. Never: weights.

project and gated take their rms norm in front: attributes norm, epsilon
gated  inputs [x], attributes gate, up, activation, norm, epsilon
add    inputs [h, x], attributes weight, post_norm, epsilon: h + post_norm?(x W^T)
head   inputs [x], attributes weight, norm, epsilon, soft_cap
"""

from __future__ import annotations

from engines.lowering.graph import Graph, Matcher, Node


def fuse_gated(graph: Graph) -> None:
    """Mul(activation(linear(x)), linear(x)) -> gated."""
    matcher = Matcher(graph)
    new: dict[str, Node] = {}
    for node in graph.nodes:
        if node.op != "Mul":
            continue
        activated, up = _activation(matcher, node.inputs[0]), _linear(matcher, node.inputs[1])
        if activated is None or up is None or activated[0].inputs != up.inputs:
            continue
        attributes = {"gate": activated[0].attributes["weight"], "up": up.attributes["weight"], "activation": activated[1]}
        new[node.outputs[0]] = Node("gated", node.name, list(up.inputs), node.outputs, attributes)
    graph.replace(new)


def fuse_residuals(graph: Graph) -> None:
    """Add(h, [RMSNormalization](linear(x))) -> add."""
    matcher = Matcher(graph)
    new: dict[str, Node] = {}
    for node in graph.nodes:
        if node.op != "Add":
            continue
        norm = matcher.made_by(node.inputs[1], "RMSNormalization")
        linear = _linear(matcher, norm.inputs[0] if norm else node.inputs[1])
        if linear is None:
            continue
        attributes = {"weight": linear.attributes["weight"], "post_norm": norm.inputs[1] if norm else ""}
        attributes["epsilon"] = float(norm.attributes.get("epsilon", 1e-5)) if norm else 0.0
        new[node.outputs[0]] = Node("add", node.name, [node.inputs[0], linear.inputs[0]], node.outputs, attributes)
    graph.replace(new)


def fuse_head(graph: Graph) -> None:
    """[soft cap](linear(RMSNormalization(x))) -> logits -> head."""
    matcher = Matcher(graph)
    value, cap = "logits", 0.0
    scaled = matcher.made_by(value, "Mul")
    tanh = matcher.made_by(scaled.inputs[0], "Tanh") if scaled else None
    divided = matcher.made_by(tanh.inputs[0], "Div") if tanh else None
    if scaled and divided and scaled.inputs[1] == divided.inputs[1] and scaled.inputs[1] in graph.constants:
        value, cap = divided.inputs[0], float(graph.constants[scaled.inputs[1]])
    linear = _linear(matcher, value)
    norm = matcher.made_by(linear.inputs[0], "RMSNormalization") if linear else None
    if linear is None or norm is None:
        return
    x = matcher.behind(norm.inputs[0], "Slice")  # which rows are wanted is the step's matter
    attributes = {"weight": linear.attributes["weight"], "norm": norm.inputs[1], "soft_cap": cap}
    attributes["epsilon"] = float(norm.attributes.get("epsilon", 1e-5))
    graph.replace({"logits": Node("head", linear.name, [x], ["logits"], attributes)})


def fuse_norms(graph: Graph) -> None:
    """RMSNormalization in front of project and gated moves into them."""
    matcher = Matcher(graph)
    for node in graph.nodes:
        norm = matcher.made_by(node.inputs[0], "RMSNormalization") if node.op in ("project", "gated") else None
        if norm is not None:
            node.inputs = [norm.inputs[0]]
            node.attributes |= {"norm": norm.inputs[1], "epsilon": float(norm.attributes.get("epsilon", 1e-5))}
    graph.remove_unused()


def _activation(matcher: Matcher, value: str) -> tuple[Node, str] | None:
    """(linear, activation) of Mul(x, Sigmoid(x)) or Gelu(x, tanh)."""
    gelu = matcher.made_by(value, "Gelu")
    if gelu is not None:
        linear = _linear(matcher, gelu.inputs[0])
        approximate = gelu.attributes.get("approximate", b"none")
        return (linear, "gelu_tanh") if linear and approximate in (b"tanh", "tanh") else None
    product = matcher.made_by(value, "Mul")
    sigmoid = matcher.made_by(product.inputs[1], "Sigmoid") if product else None
    linear = _linear(matcher, product.inputs[0]) if product else None
    return (linear, "silu") if linear and sigmoid and sigmoid.inputs[0] == linear.outputs[0] else None


def _linear(matcher: Matcher, value: str) -> Node | None:
    """The linear that makes `value`, where it has no bias: of our steps, only `project` adds one."""
    linear = matcher.made_by(value, "linear")
    return linear if linear is not None and "bias" not in linear.attributes else None
