"""What the reference changes in a portable graph before it runs. Owns: one rewrite. Needs: protobufs. Never: numbers.

A portable graph looks tokens up with Gather(DequantizeLinear(W)): natural, and the only form that TensorRT-RTX builds. ONNX
Runtime then dequantises the whole table in every run: 0.7 GB for a vocabulary of 262,144 and a width of 640. It also fuses
DequantizeLinear and MatMul into MatMulNBits only where nothing else reads the quants. DequantizeLinear goes by element, so
that gathering quants and scales first gives the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TWIN = ".twin"  # behind the names of second entries


def gather_before_dequantise(graph: Any) -> int:
    """Rewrites onnx.GraphProto in place: Gather(DQ(q, s)) -> DQ(Gather(q), Gather(s)) along the same axis.

    Who else reads W gets quants and scales that nothing else reads. int4 stays, because ONNX Runtime's Gather does not take it.
    Returns how many tables were rewritten.
    """
    from onnx import TensorProto

    eights = {tensor.name for tensor in graph.initializer if tensor.data_type == TensorProto.INT8}
    gathered = {node.input[0] for node in graph.node if node.op_type == "Gather"}
    makers = {value: node for node in graph.node for value in node.output}
    tables = {
        value: node
        for value, node in makers.items()
        if node.op_type == "DequantizeLinear" and node.input[0] in eights and value in gathered
    }
    rebuilt = []
    for node in graph.node:
        if node.op_type == "Gather" and node.input[0] in tables:
            rebuilt += _look_up(node, tables[node.input[0]])
        elif node.output[0] in tables:
            rebuilt += _apart(graph, node, makers)
        else:
            rebuilt.append(node)
    del graph.node[:]
    graph.node.extend(rebuilt)
    return len(tables)


def _look_up(gather: Any, dequantise: Any) -> list[Any]:
    """Nodes that gather quants and scales and give what `gather` gave."""
    from onnx import helper

    axis = next(attribute.i for attribute in gather.attribute if attribute.name == "axis")
    blocked = {attribute.name: helper.get_attribute_value(attribute) for attribute in dequantise.attribute}
    path, ids = gather.name, gather.input[1]
    nodes = [
        helper.make_node("Gather", [value, ids], [f"{path}/{part}.out"], name=f"{path}/{part}", axis=axis)
        for part, value in zip(("quants", "scales"), dequantise.input, strict=True)
    ]
    inputs = [node.output[0] for node in nodes]
    return [*nodes, helper.make_node("DequantizeLinear", inputs, gather.output, name=f"{path}/DequantizeLinear", **blocked)]


def _apart(graph: Any, dequantise: Any, makers: Mapping[str, Any]) -> list[Any]:
    """`dequantise` on entries of its own for the same bytes of the file, its Cast doubled too."""
    nodes, inputs = [], []
    for value in dequantise.input:
        if value not in makers:
            inputs.append(_second_entry(graph, value))
            continue
        cast = _copy(makers[value])
        cast.input[0], cast.output[0] = _second_entry(graph, cast.input[0]), value + TWIN
        cast.name += TWIN
        nodes.append(cast)
        inputs.append(cast.output[0])
    dequantise = _copy(dequantise)
    dequantise.input[:] = inputs
    return [*nodes, dequantise]


def _second_entry(graph: Any, name: str) -> str:
    entry = _copy(next(tensor for tensor in graph.initializer if tensor.name == name))
    entry.name += TWIN
    graph.initializer.append(entry)
    return entry.name


def _copy(message: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy
