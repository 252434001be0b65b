"""The protobuf of a portable ONNX. Owns: inputs, outputs, initializer entries. Needs: onnx, a graph. Never: weight values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from edge import __version__
from edge.spec import ModelSpec
from engines.portable.builder import GraphBuilder
from engines.portable.data import DataLayout
from engines.portable.external import EXTERNAL
from engines.portable.storage import ONNX_TYPES, Piece, StoredTensor

OPSET = 24
# The oldest IR version that knows opset 24; more tools read it than the newest.
IR_VERSION = 12


def make_model(
    spec: ModelSpec,
    builder: GraphBuilder,
    tensors: Iterable[StoredTensor],
    layout: DataLayout,
    location: str,
    properties: Mapping[str, str],
    dtype: str,
    last_row_only: bool,
    max_context: int | None,
) -> Any:
    """An onnx.ModelProto whose weights lie in the file `location` beside it."""
    from onnx import helper

    context: int | str = "M" if max_context is None else max_context
    inputs = [
        _value("input_ids", "int64", ["B", "S"]),
        _value("position_ids", "int64", ["B", "S"]),
        _value("write_indices", "int64", ["B"]),
        helper.make_tensor_value_info("attention_mask", _BOOL, ["B", 1, "S", context]),
    ]
    outputs = [_value("logits", dtype, ["B", 1 if last_row_only else "S", spec.vocab_size])]
    cache: list[int | str] = ["B", spec.num_kv_heads, context, spec.head_dim]
    for index in range(len(spec.layers)):
        inputs += [_value(f"past_{kind}.{index}", dtype, cache) for kind in ("key", "value")]
        outputs += [_value(f"present_{kind}.{index}", dtype, cache) for kind in ("key", "value")]
    initializers = [_constant(name, values) for name, values in builder.constants.items()]
    for tensor in tensors:
        initializers += [_external(piece, location, layout.offsets[piece.name]) for piece in tensor.pieces]
    graph = helper.make_graph(builder.nodes, spec.name or spec.architecture, inputs, outputs, initializers)
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="edge-zero",
        producer_version=__version__,
    )
    helper.set_model_props(model, dict(properties))
    return model


_BOOL = 9  # onnx.TensorProto.BOOL


def _value(name: str, dtype: str, shape: list[int | str]) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(name, ONNX_TYPES[dtype], shape)


def _constant(name: str, values: np.ndarray) -> Any:
    from onnx import numpy_helper

    return numpy_helper.from_array(values, name)


def _external(piece: Piece, location: str, offset: int) -> Any:
    from onnx import StringStringEntryProto, TensorProto

    tensor = TensorProto(name=piece.name, data_type=ONNX_TYPES[piece.dtype], dims=piece.shape, data_location=EXTERNAL)
    entries = {"location": location, "offset": str(offset), "length": str(piece.nbytes)}
    tensor.external_data.extend(StringStringEntryProto(key=key, value=value) for key, value in entries.items())
    return tensor
