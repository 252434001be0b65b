"""How a weight of the model lies in a portable ONNX. Owns: StoredTensor, Piece, node paths. Needs: numpy. Never: files, nodes.

A matrix W [N outputs, K inputs] is stored as MatMul takes it, [K, N]. A quantised one is up to three initializers:

    NAME.quants   int4 or int8 [Kp, N]   quant - zero, Kp = K padded to whole groups
    NAME.scales   float16 [Kp / group, N]
    NAME.minima   float16 [Kp / group, N], only where the tensor has minima

zero is 8 for int4 and 128 for int8; an int8 tensor with minima takes the middle of the quants that it really has (16 for
0 to 31), because the product with quant - zero and the one with minimum + zero * scale then do not cancel each other's digits.
A dense one is NAME, [K, N] (a vector [N]), float32 or float16. NAME is the canonical tensor name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calibration.schemes import GROUPS, QuantTensor
from edge.spec import check_range

# Type names of pieces -> numbers of onnx.TensorProto.DataType, so that reading needs no onnx.
ONNX_TYPES = {"float32": 1, "int8": 3, "int64": 7, "float16": 10, "int4": 22}
KINDS = {"fp32": "float32", "fp16": "float16", "int8": "int8", "int4": "int4"}  # kind of a weight -> type of its main piece
_LARGEST_AXIS = 1 << 31


@dataclass(frozen=True, slots=True)
class Piece:
    """One initializer of a stored tensor."""

    name: str
    dtype: str  # ONNX_TYPES
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        count = math.prod(self.shape)  # of Python integers, which do not wrap
        # ONNX packs int4 over the flattened tensor, two a byte; an odd count leaves half a byte empty.
        return (count + 1) // 2 if self.dtype == "int4" else count * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """The form of one tensor of the model, without its values."""

    name: str  # canonical: layers.0.attn.q_proj.weight ...
    kind: str  # KINDS
    shape: tuple[int, ...]  # [N] or [N outputs, K inputs], without padding
    group: int  # inputs a scale; 0 where dense
    has_minima: bool
    zero: int  # the quant that is stored as 0; 0 where dense

    def __post_init__(self) -> None:
        dense = self.kind in ("fp32", "fp16") and self.group == 0 and len(self.shape) in (1, 2)
        quantised = self.kind in ("int8", "int4") and self.group in GROUPS and len(self.shape) == 2
        if not dense and not quantised:
            raise ValueError(f"{self.name!r}: {self.kind!r} in groups of {self.group}, {len(self.shape)} axes: no tensor is so")
        for size in self.shape:
            check_range(f"{self.name!r}: an axis", size, 1, _LARGEST_AXIS)
        check_range(f"{self.name!r}: zero", self.zero, 0, {"int8": 255, "int4": 15}.get(self.kind, 0))

    @property
    def label(self) -> str:
        """The form in short: fp16, int8/32 (bits/group), int4/32+min."""
        return f"{self.kind}/{self.group}{'+min' if self.has_minima else ''}" if self.group else self.kind

    @property
    def padded_inputs(self) -> int:
        """K padded to whole groups."""
        return -(-self.shape[1] // self.group) * self.group if self.group else self.shape[1]

    @property
    def quants(self) -> Piece:
        outputs, _ = self.shape
        return Piece(f"{self.name}.quants", KINDS[self.kind], (self.padded_inputs, outputs))

    @property
    def scales(self) -> Piece:
        return Piece(f"{self.name}.scales", "float16", (self.padded_inputs // self.group, self.shape[0]))

    @property
    def minima(self) -> Piece:
        return Piece(f"{self.name}.minima", "float16", (self.padded_inputs // self.group, self.shape[0]))

    @property
    def dense(self) -> Piece:
        return Piece(self.name, KINDS[self.kind], self.shape[::-1])

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Every initializer of this tensor, in the order of the file."""
        if not self.group:
            return (self.dense,)
        return (self.quants, self.scales, self.minima) if self.has_minima else (self.quants, self.scales)

    @property
    def nbytes(self) -> int:
        """Bytes of all pieces."""
        return sum(piece.nbytes for piece in self.pieces)


def stored_form(name: str, shape: tuple[int, ...], values: np.ndarray | QuantTensor, largest_quant: int) -> StoredTensor:
    """The form in which a tensor of `shape` is stored, from a few of its rows and, for int8 with minima, its largest quant."""
    if isinstance(values, np.ndarray):
        return StoredTensor(name, {"float32": "fp32", "float16": "fp16"}[values.dtype.name], shape, 0, False, 0)
    has_minima = values.minima is not None
    zero = 1 << max(largest_quant.bit_length() - 1, 0) if has_minima and values.bits == 8 else values.zero
    return StoredTensor(name, f"int{values.bits}", shape, values.group, has_minima, zero)


def node_path(tensor_name: str) -> str:
    """layers.3.attn.q_proj.weight -> /layers.3/attn/q_proj; embed.weight -> /embed."""
    parts = tensor_name.removesuffix(".weight").split(".")
    if parts[0] == "layers":
        parts[:2] = [f"layers.{parts[1]}"]
    return "/" + "/".join(parts)
