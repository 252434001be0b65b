"""Matrices in the one layout that every CPU reads. Owns: the bytes of edge/contract.py, "weights". Needs: numpy.
Never: where in a file a matrix stands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibration.schemes import QuantTensor
from edge.contract import ALIGN, STEP, STRIP

KIND_BITS = {"fp16": 16, "int8": 8, "int4": 4}


@dataclass(frozen=True, slots=True)
class Geometry:
    """Shape and strides of a packed matrix: the Weight struct of the kernels without its pointer."""

    kind: str  # fp16, int8, int4
    outputs: int  # N, without padding
    inputs: int  # K, padded to STEP
    group: int  # inputs a scale; 0 for fp16
    strip_bytes: int  # from one strip of 16 outputs to the next
    scales_offset: int  # from a strip's start, bytes; 0 for fp16
    minima_offset: int  # from a strip's start, bytes; 0: none

    @property
    def byte_count(self) -> int:
        return -(-self.outputs // STRIP) * self.strip_bytes


def plan_geometry(tensor: QuantTensor | np.ndarray) -> Geometry:
    """Where pack() puts what. Depends on the number of rows in `outputs` alone: strips can be packed piece by piece."""
    outputs, inputs = tensor.shape[0], _align(tensor.shape[1], STEP)
    if isinstance(tensor, np.ndarray):
        return Geometry("fp16", outputs, inputs, 0, _align(inputs * STRIP * 2, ALIGN), 0, 0)
    kind = {bits: kind for kind, bits in KIND_BITS.items()}[tensor.bits]
    scales_offset = _align(inputs * STRIP * tensor.bits // 8, ALIGN)
    scales_bytes = _align(inputs // tensor.group * STRIP * 2, ALIGN)
    if tensor.minima is None:
        return Geometry(kind, outputs, inputs, tensor.group, scales_offset + scales_bytes, scales_offset, 0)
    minima_offset = scales_offset + scales_bytes
    return Geometry(kind, outputs, inputs, tensor.group, minima_offset + scales_bytes, scales_offset, minima_offset)


def pack(tensor: QuantTensor | np.ndarray) -> tuple[np.ndarray, Geometry]:
    """The bytes (uint8 [byte_count]) of a QuantTensor or a float16 matrix [N, K], and their geometry.

    Padding is zero bytes: padded outputs are never written, padded inputs meet activations of 0 (and scales of 0 where a
    whole group is padding). To pack a large matrix in pieces, cut it at multiples of 16 rows and join the bytes.
    """
    geometry = plan_geometry(tensor)
    strips = -(-geometry.outputs // STRIP)
    packed = np.zeros((strips, geometry.strip_bytes), np.uint8)
    if isinstance(tensor, np.ndarray):
        assert tensor.dtype == np.float16
        rows = _pad(tensor, strips * STRIP, geometry.inputs).reshape(strips, STRIP, geometry.inputs)
        packed[:, : geometry.inputs * STRIP * 2].view(np.float16)[:] = rows.transpose(0, 2, 1).reshape(strips, -1)
        return packed.reshape(-1), geometry
    quants = _pad(tensor.quants, strips * STRIP, geometry.inputs).reshape(strips, STRIP, geometry.inputs // STEP, STEP)
    if geometry.kind == "int4":
        quants = quants[..., :16] | quants[..., 16:] << 4
    # Four neighbouring inputs of one output stay together: they move as one 32-bit number.
    fours = np.ascontiguousarray(quants).view(np.uint32).transpose(0, 2, 3, 1)  # [strips, steps, fours, outputs]
    packed[:, : fours[0].size * 4].view(np.uint32).reshape(fours.shape)[:] = fours
    for values, offset in ((tensor.scales, geometry.scales_offset), (tensor.minima, geometry.minima_offset)):
        if values is not None:
            groups = geometry.inputs // geometry.group
            rows = _pad(values, strips * STRIP, groups).reshape(strips, STRIP, groups)
            packed[:, offset : offset + groups * STRIP * 2].view(np.float16)[:] = rows.transpose(0, 2, 1).reshape(strips, -1)
    return packed.reshape(-1), geometry


def unpack(packed: np.ndarray, geometry: Geometry) -> QuantTensor | np.ndarray:
    """What pack() was given, K padded to STEP: a QuantTensor, or float16 [N, K]."""
    strips = packed.reshape(-1, geometry.strip_bytes)
    outputs, inputs = geometry.outputs, geometry.inputs
    if geometry.kind == "fp16":
        return _halves(strips, 0, inputs, outputs)
    bits = KIND_BITS[geometry.kind]
    quants = strips[:, : inputs * STRIP * bits // 8].reshape(len(strips), inputs // STEP, bits, STRIP, 4)
    if geometry.kind == "int4":
        quants = np.concatenate((quants & 15, quants >> 4), axis=2)
    rows = np.ascontiguousarray(quants.transpose(0, 3, 1, 2, 4)).reshape(-1, inputs)[:outputs]
    groups = inputs // geometry.group
    scales = _halves(strips, geometry.scales_offset, groups, outputs)
    minima = _halves(strips, geometry.minima_offset, groups, outputs) if geometry.minima_offset else None
    return QuantTensor(bits, geometry.group, rows, scales, minima)


def _halves(strips: np.ndarray, offset: int, count: int, outputs: int) -> np.ndarray:
    """float16 [outputs, count] from a section of [count][16 outputs] in each strip."""
    section = np.ascontiguousarray(strips[:, offset : offset + count * STRIP * 2]).view(np.float16)
    return np.ascontiguousarray(section.reshape(-1, count, STRIP).transpose(0, 2, 1)).reshape(-1, count)[:outputs]


def _pad(values: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """`values` as [rows, columns], zeros behind; the same array where nothing is missing."""
    if values.shape == (rows, columns):
        return values
    padded = np.zeros((rows, columns), values.dtype)
    padded[: values.shape[0], : values.shape[1]] = values
    return padded


def _align(value: int, unit: int) -> int:
    return -(-value // unit) * unit
