"""KL, top-1 and perplexity against their definitions in float64."""

from __future__ import annotations

import numpy as np
import pytest

from edge.comparison import BEST, Comparison, best_logits, log_sum_exp


@pytest.fixture
def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    reference = (rng.standard_normal((20, 500)) * 4 + 30).astype(np.float32)
    return reference, reference + rng.standard_normal(reference.shape).astype(np.float32) * 0.2 - 5


def _log_probabilities(rows: np.ndarray) -> np.ndarray:
    wide = rows.astype(np.float64)
    return wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))


def test_figures_match_their_definitions(rows: tuple[np.ndarray, np.ndarray]) -> None:
    reference, tested = rows
    following = np.arange(19)
    found = Comparison()
    found.add(reference, tested, following)
    p, q = _log_probabilities(reference), _log_probabilities(tested)
    assert found.kl_mean == pytest.approx((np.exp(p) * (p - q)).sum(axis=1).mean(), rel=1e-4)
    assert found.top1 == np.mean(p.argmax(axis=1) == q.argmax(axis=1))
    assert found.reference_perplexity == pytest.approx(np.exp(-p[following, following].mean()), rel=1e-5)
    assert found.perplexity_ratio == pytest.approx(np.exp((p - q)[following, following].mean()), rel=1e-5)


def test_a_run_against_itself_is_zero(rows: tuple[np.ndarray, np.ndarray]) -> None:
    found = Comparison()
    found.add(rows[0], rows[0], np.arange(20))
    assert abs(found.kl_mean) < 1e-6
    assert (found.top1, found.perplexity_ratio) == (1.0, 1.0)


def test_parts_add_up_to_the_whole(rows: tuple[np.ndarray, np.ndarray]) -> None:
    whole, parts = Comparison(), Comparison()
    following = np.arange(20)
    whole.add(*rows, following)
    parts.add(rows[0][:7], rows[1][:7], following[:7])
    parts.add(rows[0][7:], rows[1][7:], following[7:])
    assert parts.kl_mean == pytest.approx(whole.kl_mean)
    assert parts.perplexity_ratio == pytest.approx(whole.perplexity_ratio)


def test_a_stored_reference_bounds_the_kl_from_below_and_comes_close(rows: tuple[np.ndarray, np.ndarray]) -> None:
    reference, tested = rows
    full, stored = Comparison(), Comparison()
    full.add(reference, tested, np.arange(20))
    stored.add_stored(*best_logits(reference), tested)
    assert 0 < stored.kl_mean <= full.kl_mean * 1.0001
    assert stored.kl_mean > 0.8 * full.kl_mean
    assert stored.top1 == full.top1


def test_best_logits_are_sorted_and_those_of_the_row(rows: tuple[np.ndarray, np.ndarray]) -> None:
    ids, best, norm = best_logits(rows[0])
    assert ids.shape == best.shape == (20, BEST)
    assert np.array_equal(np.sort(rows[0], axis=1)[:, : -BEST - 1 : -1], best)
    assert np.array_equal(np.take_along_axis(rows[0], ids, axis=1), best)
    assert norm == pytest.approx(log_sum_exp(rows[0]), rel=1e-6)


def test_large_logits_do_not_overflow() -> None:
    rows = np.array([[1e4, 0.0, -1e4]], dtype=np.float32)
    assert log_sum_exp(rows) == pytest.approx([1e4])
