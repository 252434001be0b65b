"""Rounding to nearest: small errors, and nothing that fp16 cannot hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calibration.rtn
from calibration.rtn import quantise_rtn
from edge.errors import SourceError

CASES = [(4, True), (4, False), (8, True), (8, False)]


def rms_error(weights: np.ndarray, bits: int, symmetric: bool, group: int = 32) -> float:
    difference = quantise_rtn(weights, bits, group, symmetric).dequantise()[:, : weights.shape[1]] - weights
    return float(np.sqrt(np.square(difference).mean() / np.square(weights).mean()))


@pytest.mark.parametrize(
    ("bits", "symmetric", "limit"), [(4, True, 0.09), (4, False, 0.074), (8, True, 0.0055), (8, False, 0.0048)]
)
def test_normal_weights_keep_a_small_error(bits: int, symmetric: bool, limit: float) -> None:
    weights = np.random.default_rng(0).standard_normal((64, 512)).astype(np.float32) * 0.02
    assert rms_error(weights, bits, symmetric) < limit


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_search_over_ranges_lowers_the_error(symmetric: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.random.default_rng(0).standard_normal((64, 512)).astype(np.float32)
    searched = rms_error(weights, 4, symmetric)
    monkeypatch.setattr(calibration.rtn, "STARTS", {4: (1.0,)})
    monkeypatch.setattr(calibration.rtn, "REFINEMENTS", {4: 0})
    assert searched < 0.94 * rms_error(weights, 4, symmetric)


@pytest.mark.parametrize(("bits", "symmetric"), CASES)
def test_constant_groups_and_zeros_keep_their_value(bits: int, symmetric: bool) -> None:
    weights = np.zeros((3, 64), np.float32)
    weights[1] = 0.1
    weights[2, :32] = -7.0
    values = quantise_rtn(weights, bits, 32, symmetric).dequantise()
    np.testing.assert_allclose(values, weights, rtol=2.0**-10, atol=0)


@pytest.mark.parametrize(("bits", "symmetric"), CASES)
@pytest.mark.parametrize("inputs", [1, 31, 33, 72])
def test_a_width_that_the_group_does_not_divide_is_padded_without_cost(bits: int, symmetric: bool, inputs: int) -> None:
    weights = np.random.default_rng(1).standard_normal((5, inputs)).astype(np.float32) + 3  # far from 0: padding would show
    tensor = quantise_rtn(weights, bits, 32, symmetric)
    assert tensor.shape == (5, -(-inputs // 32) * 32)
    assert (tensor.quants[:, inputs:] == (tensor.zero if symmetric else 0)).all()
    steps = np.abs(tensor.scales.astype(np.float32)).repeat(32, axis=1)[:, :inputs]
    assert (np.abs(tensor.dequantise()[:, :inputs] - weights) <= steps * 1.01 + 0.01).all()


@pytest.mark.parametrize(("bits", "symmetric"), CASES)
@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf, 70_000.0])
def test_what_fp16_cannot_hold_is_refused_with_the_tensors_name(bits: int, symmetric: bool, broken: float) -> None:
    weights = np.ones((3, 32), np.float32)
    weights[2, 5] = broken
    with pytest.raises(SourceError, match=r"layers\.3\.ffn: holds a value that is not a number, or over 65,504"):
        quantise_rtn(weights, bits, 32, symmetric, "layers.3.ffn")


@settings(max_examples=60, deadline=None)
@given(
    case=st.sampled_from(CASES),
    group=st.sampled_from([16, 32]),
    rows=st.integers(1, 4),
    inputs=st.integers(1, 80),
    exponent=st.integers(-30, 15),
    seed=st.integers(0, 999),
)
def test_any_finite_weights_come_back_within_a_step(
    case: tuple[int, bool], group: int, rows: int, inputs: int, exponent: int, seed: int
) -> None:
    bits, symmetric = case
    weights = np.random.default_rng(seed).uniform(-1, 1, (rows, inputs)).astype(np.float32) * np.float32(2.0**exponent)
    tensor = quantise_rtn(weights, bits, group, symmetric)
    assert np.isfinite(tensor.scales).all() and (tensor.minima is None or np.isfinite(tensor.minima).all())
    largest = np.abs(weights).max()
    # Half a step of the full range is the worst that rounding does; a clipped end may cost as much again and a little more.
    step = 2 * largest / ((1 << bits) - 2)
    assert np.abs(tensor.dequantise()[:, :inputs] - weights).max() <= 1.6 * step + largest * 2.0**-9 + 2.0**-17


def test_rows_do_not_depend_on_their_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.random.default_rng(2).standard_normal((9, 64)).astype(np.float32)
    whole = quantise_rtn(weights, 4, 32, symmetric=False)
    monkeypatch.setattr(calibration.rtn, "CHUNK_WEIGHTS", 128)
    np.testing.assert_array_equal(quantise_rtn(weights, 4, 32, symmetric=False).quants, whole.quants)
    np.testing.assert_array_equal(quantise_rtn(weights[4:6], 4, 32, symmetric=False).quants, whole.quants[4:6])


def test_float16_weights_are_taken_as_they_are() -> None:
    weights = np.random.default_rng(3).standard_normal((4, 32)).astype(np.float16)
    ours, wide = (quantise_rtn(values, 4, 32, symmetric=False) for values in (weights, weights.astype(np.float32)))
    np.testing.assert_array_equal(ours.quants, wide.quants)
