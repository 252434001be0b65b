"""Passes that make one node of a weight's form. Owns: `linear` and `embed`. Needs: graph. Never: values of weights.

linear  inputs [x], attributes weight and, where there is one, bias: x W^T + bias
embed   inputs [input_ids], attributes weight, scale: rows of W, times scale
"""

from __future__ import annotations

from engines.lowering.graph import Graph, Matcher, Node


def fold_linears(graph: Graph) -> None:
    """MatMul with a stored matrix, with or without group sums for its minima -> linear."""
    matcher = Matcher(graph)
    new: dict[str, Node] = {}
    for node in graph.nodes:
        if node.op == "Add" and (found := _with_minima(matcher, node)) is not None:
            x, weight = found
        elif node.op == "MatMul" and (stored := stored_weight(matcher, node.inputs[1])) is not None:
            x, weight = node.inputs[0], stored
        else:
            continue
        x = matcher.behind(x, "Pad")
        new[node.outputs[0]] = Node("linear", node.name, [x], node.outputs, {"weight": weight})
    graph.replace(new)


def fold_biases(graph: Graph) -> None:
    """Add of a stored vector behind a linear -> linear with that bias."""
    matcher = Matcher(graph)
    new: dict[str, Node] = {}
    for node in graph.nodes:
        linear = matcher.made_by(node.inputs[0], "linear") if node.op == "Add" else None
        if linear is not None and node.inputs[1] in graph.stored:
            attributes = {**linear.attributes, "bias": node.inputs[1]}
            new[node.outputs[0]] = Node("linear", linear.name, list(linear.inputs), node.outputs, attributes)
    graph.replace(new)


def fold_embedding(graph: Graph) -> None:
    """Gather of a stored matrix's columns, transposed, with its minima, padding and factor -> embed."""
    matcher = Matcher(graph)
    new: dict[str, Node] = {}
    for node in graph.nodes:
        found = _embedding(matcher, node.outputs[0])
        if found is not None:
            new[node.outputs[0]] = Node("embed", node.name, [found[0]], node.outputs, {"weight": found[1], "scale": found[2]})
    graph.replace(new)


def stored_weight(matcher: Matcher, value: str) -> str | None:
    """The canonical name of the stored matrix behind `value`: dense, cast, or dequantised."""
    dequantise = matcher.made_by(value, "DequantizeLinear")
    name = dequantise.inputs[0] if dequantise else matcher.behind(value, "Cast")
    if name not in matcher.graph.stored:
        return None
    return name.removesuffix(".quants") if dequantise else name


def _with_minima(matcher: Matcher, add: Node) -> tuple[str, str] | None:
    """(x, weight) of Add(MatMul(x, quants), MatMul(group_sum(x), minima + zero * scales))."""
    product, offsets = (matcher.made_by(value, "MatMul") for value in add.inputs)
    if product is None or offsets is None:
        return None
    weight = stored_weight(matcher, product.inputs[1])
    sums = matcher.made_by(offsets.inputs[0], "ReduceSum")
    grouped = matcher.made_by(sums.inputs[0], "Reshape") if sums else None
    minima = _minima_of(matcher, offsets.inputs[1])
    if weight is None or grouped is None or grouped.inputs[0] != product.inputs[0] or minima != weight:
        return None
    return product.inputs[0], weight


def _minima_of(matcher: Matcher, value: str) -> str | None:
    """The weight whose `minima + zero * scales` this is."""
    add = matcher.made_by(value, "Add")
    if add is None:
        return None
    minima, scaled = matcher.behind(add.inputs[0], "Cast"), matcher.made_by(add.inputs[1], "Mul")
    if scaled is None or minima not in matcher.graph.stored:
        return None
    scales = matcher.behind(scaled.inputs[0], "Cast")
    weight = minima.removesuffix(".minima")
    return weight if scales == f"{weight}.scales" and scaled.inputs[1] in matcher.graph.constants else None


def _embedding(matcher: Matcher, value: str) -> tuple[str, str, float] | None:
    """(ids, weight, factor) where `value` is looked-up rows."""
    node = matcher.producers[value]
    if node.op == "Mul" and (factor := matcher.constant(node.inputs[1])) is not None and factor.ndim == 0:
        inner = _embedding(matcher, node.inputs[0]) if node.inputs[0] in matcher.producers else None
        return (inner[0], inner[1], inner[2] * float(factor)) if inner else None
    rows = node.inputs[0] if node.op == "Slice" else value  # padding of K cut off
    joined = matcher.made_by(rows, "Reshape")  # minima were added group by group
    added = matcher.made_by(joined.inputs[0], "Add") if joined else None
    grouped = matcher.made_by(added.inputs[0], "Reshape") if added else None
    transpose = matcher.made_by(grouped.inputs[0] if grouped else rows, "Transpose")
    gather = matcher.made_by(transpose.inputs[0], "Gather") if transpose else None
    if gather is None or gather.attributes.get("axis") != 1 or gather.inputs[1] != "input_ids":
        return None
    weight = stored_weight(matcher, gather.inputs[0])
    return (gather.inputs[1], weight, 1.0) if weight else None
