"""What the numbers of a QuantTensor mean."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.schemes import SCHEMES, QuantTensor


def tensor_of(bits: int, minima: bool) -> QuantTensor:
    quants = np.full((2, 32), 3, np.uint8)
    scales = np.array([[0.5], [-2.0]], np.float16)
    return QuantTensor(bits, 32, quants, scales, np.array([[1.0], [-4.0]], np.float16) if minima else None)


@pytest.mark.parametrize(("bits", "zero"), [(4, 8), (8, 128)])
def test_without_minima_quants_count_from_the_middle(bits: int, zero: int) -> None:
    values = tensor_of(bits, minima=False).dequantise()
    assert values.dtype == np.float32 and values.shape == (2, 32)
    assert (values[0] == 0.5 * (3 - zero)).all() and (values[1] == -2.0 * (3 - zero)).all()


@pytest.mark.parametrize("bits", [4, 8])
def test_with_minima_quants_count_from_the_minimum(bits: int) -> None:
    values = tensor_of(bits, minima=True).dequantise()
    assert (values[0] == 0.5 * 3 + 1).all() and (values[1] == -2.0 * 3 - 4).all()


def test_bits_per_weight_count_scales_and_minima() -> None:
    assert tensor_of(4, minima=False).bits_per_weight == 4.5
    assert tensor_of(4, minima=True).bits_per_weight == 5.0
    group_of_16 = QuantTensor(8, 16, np.zeros((1, 16), np.uint8), np.ones((1, 1), np.float16), None)
    assert group_of_16.bits_per_weight == 9.0


def test_rows_are_those_of_the_whole() -> None:
    whole = tensor_of(4, minima=True)
    np.testing.assert_array_equal(whole.rows(1, 2).dequantise(), whole.dequantise()[1:2])


@pytest.mark.parametrize(
    "changes",
    [
        {"bits": 5}, {"group": 64}, {"quants": np.zeros((2, 40), np.uint8)}, {"quants": np.zeros((2, 32), np.int8)},
        {"scales": np.zeros((2, 2), np.float16)}, {"scales": np.zeros((2, 1), np.float32)},
        {"minima": np.zeros((1, 1), np.float16)},
    ],
)  # fmt: skip
def test_parts_that_do_not_fit_are_a_bug_of_ours(changes: dict[str, object]) -> None:
    parts: dict[str, object] = {
        "bits": 4, "group": 32, "quants": np.zeros((2, 32), np.uint8), "scales": np.ones((2, 1), np.float16), "minima": None,
    }  # fmt: skip
    with pytest.raises(AssertionError):
        QuantTensor(**{**parts, **changes})  # type: ignore[arg-type]


def test_a_scheme_is_found_by_its_own_name() -> None:
    assert all(scheme.name == name for name, scheme in SCHEMES.items())
