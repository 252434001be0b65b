"""Round to nearest, with the scale chosen by error. Owns: how a float matrix becomes a QuantTensor. Needs: numpy.
Never: which tensor gets which scheme (tiers.py)."""

from __future__ import annotations

import numpy as np

from calibration.schemes import ZEROS, QuantTensor
from edge.errors import SourceError

FP16_MAX = 65504.0
# A 4-bit group is fitted from its full range and from a narrower one, and each start is refined by least squares: root mean
# square error of normal weights in groups of 32 with minima 0.0723, against 0.0782 for the full range alone.
STARTS = {4: (1.0, 0.9), 8: (1.0,)}  # parts of the full range
REFINEMENTS = {4: 2, 8: 0}  # 8 bits: nothing to gain
CHUNK_WEIGHTS = 1 << 18  # rows go through in runs of about this size: the temporaries stay in the cache


def quantise_rtn(weights: np.ndarray, bits: int, group: int, symmetric: bool, name: str = "weights") -> QuantTensor:
    """float [N, K] as a QuantTensor; K is padded to whole groups. SourceError, naming `name`, for what fp16 cannot scale.

    Scales and minima are rounded to fp16 before the quants are chosen, so the quants make up for that rounding.
    """
    outputs, inputs = weights.shape
    padded = -(-inputs // group) * group
    quants = np.empty((outputs, padded), np.uint8)
    scales = np.empty((outputs, padded // group), np.float16)
    minima = None if symmetric else np.empty_like(scales)
    step = max(1, CHUNK_WEIGHTS // padded)
    for begin in range(0, outputs, step):
        part = slice(begin, begin + step)
        rows = np.asarray(weights[part], np.float32)
        if not np.abs(rows).max() <= FP16_MAX:  # also true for NaN
            raise SourceError(f"{name}: holds a value that is not a number, or over 65,504. Fetch the model again")
        grouped = _grouped(rows, padded, group)
        best = _fit_symmetric(grouped, bits) if minima is None else _fit_asymmetric(grouped, bits)
        quants[part] = (best.quants + np.float32(ZEROS[bits] if symmetric else 0)).astype(np.uint8).reshape(len(rows), padded)
        scales[part] = best.scale[..., 0]
        if minima is not None:
            minima[part] = best.minimum[..., 0]
        quants[part, inputs:] = ZEROS[bits] if symmetric else 0
    return QuantTensor(bits, group, quants, scales, minima)


def _grouped(rows: np.ndarray, padded: int, group: int) -> np.ndarray:
    """[rows, groups, group]; the last column is repeated into the padding, where it widens no range."""
    extra = padded - rows.shape[1]
    if extra:
        rows = np.concatenate((rows, np.repeat(rows[:, -1:], extra, axis=1)), axis=1)
    return rows.reshape(len(rows), -1, group)


def _fit_symmetric(grouped: np.ndarray, bits: int) -> _Best:
    """Signed quants around 0; quants and scales of the best fit."""
    zero = ZEROS[bits]
    largest = np.abs(grouped).max(axis=2, keepdims=True)
    best = _Best(grouped)
    for start in STARTS[bits]:
        scale = largest * np.float32(start / (zero - 1))
        for refinement in range(REFINEMENTS[bits] + 1):
            stored = scale.astype(np.float16)
            quants = np.rint(grouped * _inverse(stored))
            np.clip(quants, -zero, zero - 1, out=quants)
            best.take(quants, stored, np.zeros_like(stored))
            if refinement < REFINEMENTS[bits]:
                scale = _sums(quants, grouped) * _inverse(_sums(quants, quants))
    return best


def _fit_asymmetric(grouped: np.ndarray, bits: int) -> _Best:
    """Quants from 0 up, scales and minima of the best fit."""
    top = (1 << bits) - 1
    low, high = grouped.min(axis=2, keepdims=True), grouped.max(axis=2, keepdims=True)
    best = _Best(grouped)
    for start in STARTS[bits]:
        scale = (high - low) * np.float32(start / top)
        minimum = low + (high - low) * np.float32((1 - start) / 2)
        for refinement in range(REFINEMENTS[bits] + 1):
            stored, offset = scale.astype(np.float16), minimum.astype(np.float16)
            quants = np.rint((grouped - offset.astype(np.float32)) * _inverse(stored))
            np.clip(quants, 0, top, out=quants)
            best.take(quants, stored, offset)
            if refinement < REFINEMENTS[bits]:
                centre, middle = quants.mean(axis=2, keepdims=True), grouped.mean(axis=2, keepdims=True)
                apart = quants - centre
                scale = _sums(apart, grouped) * _inverse(_sums(apart, apart))
                minimum = np.clip(middle - scale * centre, -FP16_MAX, FP16_MAX)
    return best


def _sums(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Sums of products over each group, [rows, groups, 1]."""
    sums: np.ndarray = np.einsum("rgi,rgi->rg", left, right)[..., None]
    return sums


def _inverse(scale: np.ndarray) -> np.ndarray:
    """1 / scale as float32, and 0 where a group is constant."""
    wide = scale.astype(np.float32)
    return np.divide(np.float32(1), wide, out=np.zeros_like(wide), where=wide != 0)


class _Best:
    """For each group the candidate with the smallest squared error so far."""

    def __init__(self, grouped: np.ndarray) -> None:
        self._grouped = grouped
        self._error = np.full((*grouped.shape[:2], 1), np.inf, np.float32)
        self.quants = np.zeros_like(grouped)
        self.scale = np.zeros(self._error.shape, np.float16)
        self.minimum = np.zeros(self._error.shape, np.float16)

    def take(self, quants: np.ndarray, scale: np.ndarray, minimum: np.ndarray) -> None:
        difference = quants * scale.astype(np.float32) + minimum.astype(np.float32) - self._grouped
        error = _sums(difference, difference)
        better = error < self._error
        np.copyto(self._error, error, where=better)
        np.copyto(self.quants, quants, where=better)
        np.copyto(self.scale, scale, where=better)
        np.copyto(self.minimum, minimum, where=better)
