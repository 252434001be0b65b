"""GGUF block formats as QuantTensors. Owns: the bytes of each format, the rounding of their scales to fp16. Needs: raw rows.
Never: files, names of a model's layers.

Formats: ggml-common.h (block_q4_0 ... block_q6_K) and dequantize_row_* in ggml-quants.c of ggml. A format whose scale is
one fp16 number is carried exactly. A K format multiplies an fp16 number by a 6- or 8-bit integer; that product is rounded
to fp16, which costs at most 2^-11 of it. Below fp16's normal range it costs nothing: there the product is a whole multiple
of 2^-24, as its factor was, and every such multiple is an fp16 number. A product over 65,504 is refused: no weight matrix
that works has one. Gemma-3-270M (Q4_K_M) so rounded: mean KL 2e-5 against the file's exact values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from calibration.schemes import ZEROS, QuantTensor
from edge.errors import SourceError

FP16_MAX = 65504.0
CHUNK_WEIGHTS = 1 << 21  # rows are decoded in runs of about this size: temporaries stay in the cache

Decoded = tuple[np.ndarray, np.ndarray, np.ndarray | None]
# uint8 quants [rows, blocks, weights], float32 exact scales [rows, blocks, groups], exact minima or None


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """One GGUF block format and the QuantTensor that holds it."""

    weights: int  # weights a block
    bits: int  # of the QuantTensor
    group: int
    minima: bool
    decode: Callable[[np.ndarray], Decoded]  # uint8 [rows, blocks, block bytes]


@dataclass(frozen=True, slots=True)
class Rounding:
    """What became of the scales and minima of a tensor when they were rounded to fp16."""

    relative_error: float  # largest
    count: int  # numbers that changed
    total: int

    @property
    def note(self) -> str:
        return f"{self.count:,} of {self.total:,} scales and minima rounded to fp16" if self.count else ""


def decode_rows(type_name: str, raw: np.ndarray, rows: np.ndarray, name: str) -> tuple[QuantTensor, Rounding]:
    """Rows `rows` of `raw` (uint8 [N, row bytes], format `type_name`) as a QuantTensor; `name` is for errors."""
    form = BLOCK_FORMATS[type_name]
    block_bytes = _block_bytes(type_name)
    inputs = raw.shape[1] // block_bytes * form.weights
    quants = np.empty((len(rows), inputs), np.uint8)
    scales = np.empty((len(rows), inputs // form.group), np.float16)
    minima = np.empty_like(scales) if form.minima else None
    count = 0
    worst = 0.0
    step = max(1, CHUNK_WEIGHTS // inputs)
    for begin in range(0, len(rows), step):
        part = slice(begin, begin + step)
        blocks = raw[rows[part]]
        with np.errstate(invalid="ignore"):  # a broken file's inf * 0; refused below
            exact_quants, exact_scales, exact_minima = form.decode(blocks.reshape(len(blocks), -1, block_bytes))
        quants[part] = exact_quants.reshape(len(blocks), inputs)
        for exact, rounded in ((exact_scales, scales), (exact_minima, minima)):
            if exact is None or rounded is None:
                continue
            exact = exact.reshape(len(blocks), -1)
            if not np.abs(exact).max() <= FP16_MAX:  # also true for NaN
                fact = "holds a scale or minimum that is not a number, or over 65,504"
                raise SourceError(f"{name} ({type_name}): {fact}. Fetch the file again, or quantise the model again")
            rounded[part] = exact
            error = np.abs(rounded[part].astype(np.float32) - exact)
            changed = error > 0
            count += int(changed.sum())
            worst = max(worst, float((error[changed] / np.abs(exact[changed])).max(initial=0.0)))
    total = scales.size + (minima.size if minima is not None else 0)
    return QuantTensor(form.bits, form.group, quants, scales, minima), Rounding(worst, count, total)


def dequantise_rows(type_name: str, raw: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Rows `rows` of `raw` as float32 [rows, K] with the exact scales: what the file means, nothing rounded to fp16."""
    form = BLOCK_FORMATS[type_name]
    block_bytes = _block_bytes(type_name)
    inputs = raw.shape[1] // block_bytes * form.weights
    values = np.empty((len(rows), inputs // form.group, form.group), np.float32)
    step = max(1, CHUNK_WEIGHTS // inputs)
    for begin in range(0, len(rows), step):
        part = slice(begin, begin + step)
        blocks = raw[rows[part]]
        quants, scales, minima = form.decode(blocks.reshape(len(blocks), -1, block_bytes))
        values[part] = quants.reshape(values[part].shape)
        if minima is None:
            values[part] -= np.float32(ZEROS[form.bits])
        values[part] *= scales.reshape(len(blocks), -1, 1)
        if minima is not None:
            values[part] += minima.reshape(len(blocks), -1, 1)
    return values.reshape(len(rows), inputs)


def _block_bytes(type_name: str) -> int:
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    return int(GGML_QUANT_SIZES[GGMLQuantizationType[type_name]][1])


def _halves(blocks: np.ndarray, byte: int) -> np.ndarray:
    """The fp16 number at `byte` of each block as float32 [rows, blocks, 1]."""
    return np.ascontiguousarray(blocks[..., byte : byte + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: np.ndarray) -> np.ndarray:
    """Bytes [..., n] as [..., 2n]: all low nibbles, then all high ones."""
    return np.concatenate((packed & 15, packed >> 4), axis=-1)


def _fifth_bits(packed: np.ndarray) -> np.ndarray:
    """32 bits [..., 4 bytes] as the value 16 or 0 of 32 weights."""
    return np.unpackbits(packed, axis=-1, bitorder="little") << 4


def _q4_0(blocks: np.ndarray) -> Decoded:
    return _nibbles(blocks[..., 2:]), _halves(blocks, 0), None


def _q4_1(blocks: np.ndarray) -> Decoded:
    return _nibbles(blocks[..., 4:]), _halves(blocks, 0), _halves(blocks, 2)


def _q5_0(blocks: np.ndarray) -> Decoded:
    quants = _nibbles(blocks[..., 6:]) | _fifth_bits(blocks[..., 2:6])
    return quants + np.uint8(128 - 16), _halves(blocks, 0), None


def _q5_1(blocks: np.ndarray) -> Decoded:
    return _nibbles(blocks[..., 8:]) | _fifth_bits(blocks[..., 4:8]), _halves(blocks, 0), _halves(blocks, 2)


def _q8_0(blocks: np.ndarray) -> Decoded:
    return blocks[..., 2:] ^ np.uint8(128), _halves(blocks, 0), None  # int8 q as q + 128: the sign bit flipped


def _k_scales(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Exact scales and minima [rows, blocks, 8] of Q4_K and Q5_K: 12 bytes hold 8 scales and 8 minima of 6 bits."""
    packed = blocks[..., 4:16]
    first, second, third = packed[..., 0:4], packed[..., 4:8], packed[..., 8:12]
    scales = np.concatenate((first & 63, third & 15 | first >> 6 << 4), axis=-1)
    minima = np.concatenate((second & 63, third >> 4 | second >> 6 << 4), axis=-1)
    return _halves(blocks, 0) * scales, -(_halves(blocks, 2) * minima)  # 11 + 6 bits: exact in float32


def _q4_k(blocks: np.ndarray) -> Decoded:
    runs = blocks[..., 16:144].reshape(*blocks.shape[:2], 4, 32)  # each: 32 low nibbles, then 32 high ones
    return _nibbles(runs), *_k_scales(blocks)


def _q5_k(blocks: np.ndarray) -> Decoded:
    runs = blocks[..., 48:176].reshape(*blocks.shape[:2], 4, 32)
    shifts = np.arange(8, dtype=np.uint8)[:, None]
    fifth = (blocks[..., None, 16:48] >> shifts & 1) << 4  # bit g of byte i: weight i of group g
    return _nibbles(runs).reshape(fifth.shape) | fifth, *_k_scales(blocks)


def _q6_k(blocks: np.ndarray) -> Decoded:
    low = blocks[..., :128].reshape(*blocks.shape[:2], 2, 64)  # each half: 64 low nibbles, then 64 high ones
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    high = blocks[..., 128:192].reshape(*blocks.shape[:2], 2, 1, 32) >> shifts & 3  # [.., half, run of 32, 32]
    quants = _nibbles(low).reshape(high.shape) | high << 4
    scales = _halves(blocks, 208) * np.ascontiguousarray(blocks[..., 192:208]).view(np.int8)  # 11 + 7 bits
    return quants + np.uint8(128 - 32), scales, None


BLOCK_FORMATS = {
    "Q4_0": BlockFormat(weights=32, bits=4, group=32, minima=False, decode=_q4_0),
    "Q4_1": BlockFormat(weights=32, bits=4, group=32, minima=True, decode=_q4_1),
    "Q5_0": BlockFormat(weights=32, bits=8, group=32, minima=False, decode=_q5_0),
    "Q5_1": BlockFormat(weights=32, bits=8, group=32, minima=True, decode=_q5_1),
    "Q8_0": BlockFormat(weights=32, bits=8, group=32, minima=False, decode=_q8_0),
    "Q4_K": BlockFormat(weights=256, bits=4, group=32, minima=True, decode=_q4_k),
    "Q5_K": BlockFormat(weights=256, bits=8, group=32, minima=True, decode=_q5_k),
    "Q6_K": BlockFormat(weights=256, bits=8, group=16, minima=False, decode=_q6_k),
}
