"""Weights as TensorRT graphs hold them keep their values."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from calibration.schemes import QuantTensor
from engines.tensorrt.weight_forms import channel_scales, mend_scales


def _rows(seed: int, has_minima: bool, signs: tuple[int, ...]) -> QuantTensor:
    """int4 rows whose scales have these signs."""
    rng = np.random.default_rng(seed)
    scales = rng.choice(signs, (5, 3)) * rng.uniform(0.001, 0.1, (5, 3))
    minima = rng.normal(0, 0.1, (5, 3)).astype(np.float16) if has_minima else None
    return QuantTensor(4, 32, rng.integers(0, 16, (5, 96), dtype=np.uint8), scales.astype(np.float16), minima)


@given(st.integers(0, 2**32), st.booleans())
def test_mended_scales_are_over_0_and_the_weights_stay(seed: int, has_minima: bool) -> None:
    rows = _rows(seed, has_minima, (-1, 0, 1))
    quants, scales, offsets = mend_scales(rows)
    assert (scales > 0).all() and quants.max() <= 15
    grouped = quants.reshape(5, 3, 32).astype(np.float32) - 8
    mended = grouped * scales.astype(np.float32)[:, :, None] + offsets.astype(np.float32)[:, :, None]
    rounding = np.abs(offsets.astype(np.float32))[:, :, None] * 2.0**-11 + 1e-6
    assert (np.abs(mended - rows.dequantise().reshape(5, 3, 32)) <= rounding).all()


@given(st.integers(0, 2**32))
def test_without_minima_and_scales_under_0_offsets_are_0(seed: int) -> None:
    assert not mend_scales(_rows(seed, False, (1,)))[2].any()


@given(st.integers(0, 2**32), st.floats(1e-6, 100.0))
def test_no_weight_is_further_off_than_half_a_channel_step(seed: int, spread: float) -> None:
    weights = np.random.default_rng(seed).normal(0, spread, (7, 40)).astype(np.float32)
    scales = channel_scales(weights).astype(np.float32)[:, None]
    assert (scales > 0).all()
    quants = np.clip(np.rint(weights / scales), -127, 127)
    assert (np.abs(quants * scales - weights) <= scales * 0.5001).all()


def test_a_row_of_zeros_gets_a_scale_over_0() -> None:
    assert channel_scales(np.zeros((2, 8), np.float32)).tolist() == [1.0, 1.0]
