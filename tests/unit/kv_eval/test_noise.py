"""What chance can do to needles and to KL."""

from __future__ import annotations

import numpy as np
import pytest

from edge.kv_eval.noise import Blocks, Paired, difference
from edge.kv_eval.recall import Asked, Recall


@pytest.mark.parametrize(
    ("lost", "gained", "chance"), [(0, 0, 1.0), (1, 0, 0.5), (5, 0, 1 / 32), (3, 1, 5 / 16), (2, 2, 11 / 16), (0, 4, 1.0)]
)
def test_the_sign_test_counts_as_by_hand(lost: int, gained: int, chance: float) -> None:
    assert Paired(lost, gained).chance == pytest.approx(chance)


def test_one_lost_needle_is_no_loss_and_five_without_a_gain_are() -> None:
    assert not Paired(1, 0).is_loss and not Paired(4, 0).is_loss and not Paired(8, 4).is_loss
    assert Paired(5, 0).is_loss and Paired(12, 3).is_loss and not Paired(3, 12).is_loss


def recall(*right: bool) -> Recall:
    asked = [Asked("needle", 1000 * (1 + number % 2), (number / 8,), "p") for number in range(len(right) - 1)]
    return Recall([*asked, Asked("moved", 1000, (0.1, 0.9), "q")], list(right))


def test_answers_are_paired_question_by_question_and_chains_stay_out() -> None:
    exact, other = recall(True, True, False, True, True), recall(True, False, True, False, False)
    assert other.needles_against(exact) == Paired(lost=2, gained=1)
    assert (exact.needles, exact.chains, other.needles, other.chains) == ((3, 4), (1, 1), (2, 4), (0, 1))
    assert exact.lengths == (1000, 2000)
    assert exact.needles_where(tokens=2000) == (2, 2) and exact.needles_where(depth=(0.0, 0.2)) == (2, 2)


def blocks(values: np.ndarray, rows: int = 128) -> Blocks:
    return Blocks(tuple((values * rows).tolist()), (rows,) * len(values))


def test_the_error_of_a_difference_is_that_of_the_paired_means() -> None:
    draw = np.random.default_rng(0)
    text = draw.exponential(0.005, 40)  # how hard a stretch is, for both
    first, second = text + draw.normal(0.001, 0.0005, 40), text
    found, gaps = difference(blocks(first), blocks(second)), first - second
    assert found.mean == pytest.approx(gaps.mean()) and found.error == pytest.approx(gaps.std(ddof=1) / 40**0.5)


def test_stretches_count_by_their_rows_and_a_single_one_has_no_error() -> None:
    first, second = Blocks((3.0, 1.0), (100, 300)), Blocks((1.0, 1.0), (100, 300))
    assert difference(first, second).mean == pytest.approx(2 / 400) and first.mean == 0.01
    assert difference(Blocks((1.0,), (9,)), Blocks((2.0,), (9,))).error is None
