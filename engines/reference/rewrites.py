"""What the reference changes in a portable graph before it runs. Owns: one rewrite. Needs: protobufs. Never: numbers.

A portable graph looks tokens up with Gather(DequantizeLinear(W)): natural, and the only form that TensorRT-RTX builds. ONNX
Runtime then keeps the dequantised table until the lookup and the head are done: 0.7 GB for a vocabulary of 262,144 and a width
of 640. DequantizeLinear goes by element, so that gathering quants and scales first gives the same bits. (A tied head stays a
plain MatMul: fusing its int8 into MatMulNBits in float32 takes a second copy, and more time than dequantising.)
"""

from __future__ import annotations

from typing import Any


def gather_before_dequantise(graph: Any) -> int:
    """Rewrites onnx.GraphProto in place: Gather(DQ(q, s)) -> DQ(Gather(q), Gather(s)) along the same axis, for int8.

    int4 stays, because ONNX Runtime's Gather does not take it. Returns how many lookups were rewritten.
    """
    from onnx import TensorProto

    eights = {tensor.name for tensor in graph.initializer if tensor.data_type == TensorProto.INT8}
    tables = {node.output[0]: node for node in graph.node if node.op_type == "DequantizeLinear" and node.input[0] in eights}
    rebuilt, count = [], 0
    for node in graph.node:
        if node.op_type == "Gather" and node.input[0] in tables:
            rebuilt += _look_up(node, tables[node.input[0]])
            count += 1
        else:
            rebuilt.append(node)
    # ONNX Runtime would go on running a DequantizeLinear that nothing reads.
    read = {value for node in rebuilt for value in node.input}
    rebuilt = [node for node in rebuilt if node.output[0] in read or node.output[0] not in tables]
    del graph.node[:]
    graph.node.extend(rebuilt)
    return count


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
