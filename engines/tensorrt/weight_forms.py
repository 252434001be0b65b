"""How a tensor lies in the weights of a TensorRT graph. Owns: WeightForm and its three kinds. Needs: a portable model.
Never: nodes, where in the file.

Every library wants symmetric quants and scales over 0. Of a portable tensor

    dense     stays as it is: [K, N] or [N]
    blocks    int4 keeps its groups: quants [Kp, N], scales float16 [Kp / group, N]; where there are minima or a scale under 0
              also offsets, float16 [Kp / group, N]: x W^T = x DQ(quants, scales) + group_sum(x) offsets
    channels  int8 becomes quants [N, K], scales float16 [N], W = scale * quant, rounded to nearest

because TensorRT knows INT8 per tensor and per channel only, and TensorRT-RTX 1.7 dequantises blocks of int8 to float16 in
memory at every step (its log counts 2 K N bytes of scratch more; int4 blocks need none, int8 channels only in a profile whose
S is always 1) and keeps some of them in the plan as float16. KL of channels against the blocks, in float16, over 2,048 tokens:
SmolLM2-135M int8 0.0042, its table alone 0.0012; Gemma-3-270M int8 0.0054, its table alone 0.0027. Of float16 and of rounded
offsets alone: SmolLM2-135M int4 0.00001.

int4 keeps blocks of 32 although NVIDIA's "Quantization Schemes" names 64 and 128 for INT4 of TensorRT 10.x and 11.x:
TensorRT-RTX 1.7 builds 32, and regrouping SmolLM2-135M to 64 costs a KL of 0.10.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from calibration.schemes import QuantTensor
from engines.portable.data import block_rows, pack_int4
from engines.portable.reader import PortableModel
from engines.portable.storage import Piece, StoredTensor

_ZERO = 8  # the int4 quant that means 0
_LEVELS = 127  # of int8: -127 to 127, so that a weight and its opposite are both there


class WeightForm(Protocol):
    """One tensor of the model as a graph reads it."""

    @property
    def name(self) -> str:
        """The canonical tensor name."""

    @property
    def kind(self) -> Literal["fp32", "fp16", "int8", "int4"]:
        """As a manifest says it."""

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Its initializers, in the order of the file."""

    def write(self, model: PortableModel, arrays: Mapping[str, np.ndarray]) -> float:
        """Fills `arrays`, by piece name: of the piece's shape and type, int4 as packed bytes [count / 2]. What comes back is
        rms(written - portable) / rms(portable) of quants that were rounded once more, 0.0 where none was."""


@dataclass(frozen=True, slots=True)
class DenseForm:
    """Values as the portable graph has them."""

    stored: StoredTensor

    @property
    def name(self) -> str:
        return self.stored.name

    @property
    def kind(self) -> Literal["fp32", "fp16"]:
        return "fp32" if self.stored.kind == "fp32" else "fp16"

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return (self.stored.dense,)

    def write(self, model: PortableModel, arrays: Mapping[str, np.ndarray]) -> float:
        arrays[self.name][...] = model.array(self.name)
        return 0.0


@dataclass(frozen=True, slots=True)
class BlocksForm:
    """int4 with a scale for each `stored.group` inputs of an output."""

    stored: StoredTensor
    has_offsets: bool

    @property
    def name(self) -> str:
        return self.stored.name

    @property
    def kind(self) -> Literal["int4"]:
        return "int4"

    @property
    def offsets(self) -> Piece:
        return Piece(f"{self.name}.offsets", "float16", self.stored.scales.shape)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        kept = (self.stored.quants, self.stored.scales)
        return (*kept, self.offsets) if self.has_offsets else kept

    def write(self, model: PortableModel, arrays: Mapping[str, np.ndarray]) -> float:
        stored, packed = self.stored, arrays[self.stored.quants.name]
        for begin, end, rows in _runs(model, stored):
            quants, scales, offsets = mend_scales(rows)
            signed = np.ascontiguousarray((quants - np.uint8(_ZERO)).T)  # two's complement, which uint8 gives
            if end - begin == stored.shape[0]:
                packed[:] = pack_int4(signed)
            else:
                columns = packed.reshape(stored.padded_inputs, -1)
                columns[:, begin // 2 : end // 2] = pack_int4(signed).reshape(stored.padded_inputs, -1)
            arrays[stored.scales.name][:, begin:end] = scales.T
            if self.has_offsets:
                arrays[self.offsets.name][:, begin:end] = offsets.T
        return 0.0


@dataclass(frozen=True, slots=True)
class ChannelsForm:
    """int8 with one scale an output."""

    stored: StoredTensor

    @property
    def name(self) -> str:
        return self.stored.name

    @property
    def kind(self) -> Literal["int8"]:
        return "int8"

    @property
    def quants(self) -> Piece:
        return Piece(f"{self.name}.quants", "int8", self.stored.shape)

    @property
    def scales(self) -> Piece:
        return Piece(f"{self.name}.scales", "float16", self.stored.shape[:1])

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return self.quants, self.scales

    def write(self, model: PortableModel, arrays: Mapping[str, np.ndarray]) -> float:
        errors = squares = 0.0
        for begin, end, rows in _runs(model, self.stored):
            weights = rows.dequantise()[:, : self.stored.shape[1]]
            scales = channel_scales(weights)
            steps = scales.astype(np.float32)[:, None]
            quants = np.clip(np.rint(weights / steps), -_LEVELS, _LEVELS)
            arrays[self.scales.name][begin:end] = scales
            arrays[self.quants.name][begin:end] = quants
            squares += float(np.square(weights, dtype=np.float64).sum())
            weights -= quants * steps
            errors += float(np.square(weights, dtype=np.float64).sum())
        return (errors / squares) ** 0.5 if squares else 0.0


def weight_form(model: PortableModel, stored: StoredTensor) -> DenseForm | BlocksForm | ChannelsForm:
    """The form of a tensor of `model`. Scales of int4 without minima are read: one under 0 asks for offsets."""
    if not stored.group:
        return DenseForm(stored)
    if stored.kind == "int8":
        return ChannelsForm(stored)
    under = not stored.has_minima and bool((model.array(stored.scales.name) < 0).any())
    return BlocksForm(stored, stored.has_minima or under)


def mend_scales(rows: QuantTensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """int4 rows as quants uint8 [n, K], scales float16 over 0 and offsets float16 [n, K / group].

    W = scale * (quant - 8) + offset, which is exact but for the rounding of offsets. A scale d under 0 (Q4_0 has them in half
    of its groups) becomes -d with quant q as 15 - q, since d q = -d (15 - q) + 15 d. One of 0 becomes 1 with all quants 8.
    """
    scales = rows.scales.astype(np.float32)
    minima = -_ZERO * scales if rows.minima is None else rows.minima.astype(np.float32)
    under, none = scales < 0, scales == 0
    minima = np.where(under, minima + 15 * scales, minima)
    positive = np.where(none, np.float32(1), np.abs(scales))
    offsets = np.where(none, minima, minima + _ZERO * positive)
    turned, still = (np.repeat(mask, rows.group, axis=1) for mask in (under, none))
    quants = np.where(turned, np.uint8(15) - rows.quants, rows.quants)
    quants = np.where(still, np.uint8(_ZERO), quants)
    return quants, positive.astype(np.float16), offsets.astype(np.float16)


def channel_scales(weights: np.ndarray) -> np.ndarray:
    """float16 [n] over 0: the largest magnitude of each row of `weights` float32 [n, K] over 127; 1 where all are 0."""
    largest = np.abs(weights).max(axis=1)
    scales = (largest / _LEVELS).astype(np.float16)
    # Small scales are subnormal and so coarse that one rounded down would clip by more than half a step.
    too_small = scales.astype(np.float32) * (_LEVELS + 0.5) < largest
    scales = np.where(too_small, np.nextafter(scales, np.float16(np.inf)), scales)
    return np.where(largest == 0, np.float16(1), scales)


def _runs(model: PortableModel, stored: StoredTensor) -> Iterator[tuple[int, int, QuantTensor]]:
    """(begin, end, rows) of a quantised tensor, few enough at once that their float32 stays small."""
    step = block_rows(stored)
    for begin in range(0, stored.shape[0], step):
        end = min(begin + step, stored.shape[0])
        rows = model.weight(stored.name, begin, end)
        assert isinstance(rows, QuantTensor)
        yield begin, end, rows
