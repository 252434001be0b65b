"""What the native core finds in a row of logits, compared with NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

core: Any = pytest.importorskip("edge._core", reason="needs the native core: pip install .")

ROWS = hnp.arrays(
    np.float32,
    st.one_of(st.integers(1, 40), st.integers(1000, 1100), st.just(5000)),
    elements=st.one_of(st.integers(-4, 4).map(float), st.floats(-(2.0**127), 2.0**127, width=32), st.just(-math.inf)),
    fill=st.sampled_from([0.0, -1.5, 3.0]),
)


def scores_of(logits: np.ndarray, top: float, temperature: float) -> np.ndarray:
    with np.errstate(over="ignore"):
        return (logits - np.float32(top)) / np.float32(temperature)


@given(ROWS)
def test_the_best_logit_is_the_first_of_equals(logits: np.ndarray) -> None:
    assert core.best_logit(logits) == (logits.argmax(), logits.max())


@given(ROWS, st.data())
def test_a_nan_anywhere_is_told(logits: np.ndarray, data: st.DataObject) -> None:
    logits[data.draw(st.integers(0, len(logits) - 1))] = math.nan
    assert math.isnan(core.best_logit(logits)[1])


@given(ROWS, st.sampled_from([1e-30, 0.7, 1.0, 50.0]), st.data())
def test_the_best_scores_come_best_first_and_the_lower_id_before_its_equals(
    logits: np.ndarray, temperature: float, data: st.DataObject
) -> None:
    top = float(logits.max())
    if not math.isfinite(top):
        return
    count = data.draw(st.integers(1, len(logits)) | st.integers(1, min(60, len(logits))))
    ids, values = np.empty(count, np.int32), np.empty(count, np.float32)
    core.best_scores(logits, top, temperature, ids, values)
    scores = scores_of(logits, top, temperature)
    expected = np.argsort(-scores, kind="stable")[:count]
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_array_equal(values, scores[expected])


@given(ROWS, st.sampled_from([1e-30, 0.7, 1.0, 50.0]))
def test_the_sum_of_exponentials_is_that_of_double_precision(logits: np.ndarray, temperature: float) -> None:
    top = float(logits.max())
    if not math.isfinite(top):
        return
    expected = np.exp(scores_of(logits, top, temperature).astype(np.float64)).sum()
    assert core.sum_exponentials(logits, top, temperature) == pytest.approx(expected, rel=1e-6)


def test_rows_as_wide_as_real_vocabularies() -> None:
    rng = np.random.default_rng(0)
    for count in (49_152, 262_144):
        logits = (3 * rng.standard_normal(count)).astype(np.float32)
        logits[count // 2 :: 7] = logits.max()  # thousands of equals
        assert core.best_logit(logits) == (logits.argmax(), logits.max())
        for wanted in (1, 40, 256, 4096):
            ids, values = np.empty(wanted, np.int32), np.empty(wanted, np.float32)
            core.best_scores(logits, float(logits.max()), 1.0, ids, values)
            np.testing.assert_array_equal(ids, np.argsort(-logits, kind="stable")[:wanted])


@pytest.mark.parametrize("count", [0, 4])
def test_more_scores_than_logits_or_none_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match="wants 1 to all"):
        core.best_scores(np.zeros(3, np.float32), 0.0, 1.0, np.empty(count, np.int32), np.empty(count, np.float32))


def test_an_empty_row_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        core.best_logit(np.empty(0, np.float32))
