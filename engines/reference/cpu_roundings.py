"""What the CPU engine rounds, apart from its integer attention. Owns: int8 activations and fp16 pages as NumPy has them.

Needs: a portable model. Never: the native core.
"""

from __future__ import annotations

import numpy as np

from calibration.schemes import QuantTensor
from engines.portable.reader import PortableModel
from engines.reference.numpy_forward import Roundings, Weights

STEP = 32  # neighbours that share a scale


def dense_weights(model: PortableModel) -> Weights:
    """The weights of `model` as float32; a tensor is read anew each time."""

    def read(name: str) -> np.ndarray:
        values = model.weight(name)
        if isinstance(values, QuantTensor):
            return values.dequantise()[:, : model.stored[name].shape[1]]  # less its padding
        return values.astype(np.float32)

    return read


def cpu_roundings(model: PortableModel) -> Roundings:
    """Inputs of a quantised weight are int8, of the others float32; K and V are fp16."""
    return Roundings(lambda name, x: int8_rows(x) if model.stored[name].group else x, half_pages)


def int8_rows(x: np.ndarray) -> np.ndarray:
    """float32 [T, K]: each 32 neighbours as scale * q, scale = largest magnitude / 127, q to nearest even."""
    tokens, width = x.shape
    padded = np.pad(x, ((0, 0), (0, -width % STEP))).reshape(tokens, -1, STEP)
    largest = np.abs(padded).max(axis=-1, keepdims=True)
    inverse = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest >= np.float32(2.0**-100))
    return (np.rint(padded * inverse) * (largest / np.float32(127))).reshape(tokens, -1)[:, :width]


def half_pages(x: np.ndarray) -> np.ndarray:
    """K or V as a page keeps it: fp16, magnitudes up to 65504."""
    return np.clip(x, -65504, 65504).astype(np.float16).astype(np.float32)
