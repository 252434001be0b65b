"""The ONNX file of a lowered graph. Owns: its bytes, what it says of its inputs and outputs. Needs: onnx. Never: weights.

The same graph over the same places in the weights file gives the same bytes: no times, no paths, no version of ours, attributes
in alphabetical order. So the SHA-256 of the file names the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from edge.engine_record import EngineTensor
from engines.lowering.graph import VALUE_TYPES, Graph, Node, Value
from engines.portable.external import EXTERNAL
from engines.portable.storage import ONNX_TYPES, Piece


def encode_graph(
    graph: Graph, pieces: Iterable[Piece], location: str, offsets: Mapping[str, int], opset: int, ir_version: int
) -> bytes:
    """An ONNX model whose weights, `pieces`, lie at `offsets` of the file `location` beside it."""
    from onnx import helper, numpy_helper

    read = graph.uses()
    initializers = [numpy_helper.from_array(graph.constants[name], name) for name in sorted(graph.constants) if read[name]]
    initializers += [_external(piece, location, offsets[piece.name]) for piece in pieces if read[piece.name]]
    domains = {"": opset, **{node.domain: 1 for node in graph.nodes if node.domain}}
    model = helper.make_model(
        helper.make_graph(
            [_node(node) for node in graph.nodes],
            graph.name,
            [_value(value) for value in graph.inputs],
            [_value(value) for value in graph.outputs],
            initializers,
        ),
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in domains.items()],
        ir_version=ir_version,
        producer_name="edge-zero",
    )
    return bytes(model.SerializeToString(deterministic=True))


def engine_tensors(graph: Graph) -> tuple[EngineTensor, ...]:
    """Inputs, then outputs, as an engine built of the graph has them."""

    def tensors(values: tuple[Value, ...], is_input: bool) -> list[EngineTensor]:
        return [
            EngineTensor(v.name, v.dtype, tuple(size if isinstance(size, int) else -1 for size in v.shape), is_input)
            for v in values
        ]

    return (*tensors(graph.inputs, True), *tensors(graph.outputs, False))


def _node(node: Node) -> Any:
    from onnx import helper

    # make_node leaves attributes in alphabetical order.
    return helper.make_node(node.op, node.inputs, node.outputs, name=node.name, domain=node.domain, **node.attributes)


def _value(value: Value) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(value.name, VALUE_TYPES[value.dtype], value.shape)


def _external(piece: Piece, location: str, offset: int) -> Any:
    from onnx import StringStringEntryProto, TensorProto

    tensor = TensorProto(name=piece.name, data_type=ONNX_TYPES[piece.dtype], dims=piece.shape, data_location=EXTERNAL)
    entries = {"location": location, "offset": str(offset), "length": str(piece.nbytes)}
    tensor.external_data.extend(StringStringEntryProto(key=key, value=value) for key, value in entries.items())
    return tensor
