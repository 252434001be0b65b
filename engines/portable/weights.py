"""Nodes that turn stored weights into matrix products. Owns: the op forms of a weight. Needs: a builder. Never: values, layers.

Without minima W is DequantizeLinear(quants, scales). With them W = scale * quant + minimum does not fit its integer zero
point, so that with x the input, z the zero (storage.py) and g the group

    x W^T = MatMul(x, DQ(quants, scales)) + MatMul(group_sum(x), minima + z * scales)

group_sum(x) [B, S, Kp / g] adds g neighbours. It is exact in float32 and leaves the quants symmetric, as TensorRT wants them.
"""

from __future__ import annotations

import numpy as np

from engines.portable.builder import GraphBuilder
from engines.portable.storage import ONNX_TYPES, Piece, StoredTensor, node_path


class WeightNodes:
    """Emits the nodes of weights; what two of them share (a tied table, sums of one input) is emitted once."""

    def __init__(self, builder: GraphBuilder, dtype: str) -> None:
        self._builder = builder
        self._dtype = dtype  # float32 or float16: of the activations
        self._shared: dict[tuple[str, ...], str] = {}

    def matmul(self, x: str, stored: StoredTensor, path: str) -> str:
        """x [B, S, K] -> x W^T [B, S, N]."""
        inputs = self._padded(x, stored)
        product = self._builder.node("MatMul", f"{path}/MatMul", [inputs, self._matrix(stored)])
        if not stored.has_minima:
            return product
        sums = self._group_sum(inputs, stored)
        offsets = self._builder.node("MatMul", f"{path}/minima/MatMul", [sums, self._offset(stored)])
        return self._builder.node("Add", f"{path}/Add", [product, offsets])

    def gather(self, ids: str, stored: StoredTensor, path: str) -> str:
        """ids [B, S] -> rows of W [B, S, K]. W lies as [K, N] here too, so that a tied head reads the same initializer."""
        node, ints = self._builder.node, self._builder.ints
        columns = node("Gather", f"{path}/Gather", [self._matrix(stored), ids], axis=1)
        rows = node("Transpose", f"{path}/Transpose", [columns], perm=[1, 2, 0])
        if stored.has_minima:
            columns = node("Gather", f"{path}/minima/Gather", [self._offset(stored), ids], axis=1)
            offsets = node("Transpose", f"{path}/minima/Transpose", [columns], perm=[1, 2, 0])
            offsets = node("Unsqueeze", f"{path}/minima/Unsqueeze", [offsets, ints(3)])
            grouped = node("Reshape", f"{path}/minima/Reshape", [rows, ints(0, 0, -1, stored.group)])
            grouped = node("Add", f"{path}/minima/Add", [grouped, offsets])
            rows = node("Reshape", f"{path}/minima/Reshape_1", [grouped, ints(0, 0, stored.padded_inputs)])
        if stored.padded_inputs != stored.shape[1]:
            rows = node("Slice", f"{path}/Slice", [rows, ints(0), ints(stored.shape[1]), ints(2)])
        return rows

    def _matrix(self, stored: StoredTensor) -> str:
        """W as [Kp, N] in the type of the activations; with minima: scale * (quant - zero)."""
        path = node_path(stored.name)
        if not stored.group:
            return self._cast(stored.dense, path)
        key = ("matrix", stored.name)
        if key not in self._shared:
            scales = self._cast(stored.scales, f"{path}/scales")
            self._shared[key] = self._builder.node(
                "DequantizeLinear", f"{path}/DequantizeLinear", [stored.quants.name, scales], axis=0, block_size=stored.group
            )
        return self._shared[key]

    def _offset(self, stored: StoredTensor) -> str:
        """minima + zero * scales, [Kp / group, N]."""
        key = ("offset", stored.name)
        if key not in self._shared:
            path = node_path(stored.name)
            zero = self._builder.constant(f"zero.{stored.zero}", np.array(stored.zero, self._dtype))
            scales = self._cast(stored.scales, f"{path}/scales")
            scaled = self._builder.node("Mul", f"{path}/minima/Mul", [scales, zero])
            minima = self._cast(stored.minima, f"{path}/minima")
            self._shared[key] = self._builder.node("Add", f"{path}/minima/Add_zero", [minima, scaled])
        return self._shared[key]

    def _cast(self, piece: Piece, path: str) -> str:
        if piece.dtype == self._dtype:
            return piece.name
        key = ("cast", piece.name)
        if key not in self._shared:
            self._shared[key] = self._builder.node("Cast", f"{path}/Cast", [piece.name], to=ONNX_TYPES[self._dtype])
        return self._shared[key]

    def _padded(self, x: str, stored: StoredTensor) -> str:
        missing = stored.padded_inputs - stored.shape[1]
        if not missing:
            return x
        key = ("pad", x, str(missing))
        if key not in self._shared:
            pads = self._builder.ints(0, 0, 0, 0, 0, missing)
            self._shared[key] = self._builder.node("Pad", f"{_owner(x)}/pad_{missing}/Pad", [x, pads])
        return self._shared[key]

    def _group_sum(self, x: str, stored: StoredTensor) -> str:
        key = ("group_sum", x, str(stored.group))
        if key not in self._shared:
            path = f"{_owner(x)}/group_sum_{stored.group}"
            grouped = self._builder.node("Reshape", f"{path}/Reshape", [x, self._builder.ints(0, 0, -1, stored.group)])
            self._shared[key] = self._builder.node(
                "ReduceSum", f"{path}/ReduceSum", [grouped, self._builder.ints(-1)], keepdims=0
            )
        return self._shared[key]


def _owner(value: str) -> str:
    """The folder of the node that makes `value`: /layers.0/attn_norm of /layers.0/attn_norm/RMSNormalization.out."""
    return value.rsplit("/", 1)[0]
