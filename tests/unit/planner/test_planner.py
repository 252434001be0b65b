"""The memory table: what fits, what would fit, and what is said when nothing does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.contract import PAGE_TOKENS
from edge.errors import BudgetError
from edge.planner import MemorySizes, check_budget, plan_memory

MB = 10**6


def sizes(weights: int = 100 * MB, per_token: int = 20_000) -> MemorySizes:
    """A pool that grows in slabs of 2 MB, and a workspace that grows in blocks of 128 tokens."""
    return MemorySizes(
        weights=weights,
        pool=lambda context: -(-context * per_token // (2 * MB)) * 2 * MB,
        workspace=lambda context: 5 * MB + -(-context // 128) * 1000,
        host=50 * MB,
    )


def test_a_plan_adds_up() -> None:
    plan = plan_memory(sizes(), context=1000, longest_context=8192, available=1000 * MB)
    assert plan.rows == (("weights", 100 * MB), ("pool", 20 * MB), ("workspace", 5_008_000), ("host", 50 * MB))
    assert plan.total == 175_008_000
    assert plan.fits
    assert plan.largest_context == 8192
    check_budget(plan, "a.edge", lambda context: f"--ctx-size {context}")


def test_what_does_not_fit_is_refused_with_what_would() -> None:
    plan = plan_memory(sizes(), context=8192, longest_context=8192, available=200 * MB)
    assert not plan.fits
    with pytest.raises(BudgetError) as caught:
        check_budget(plan, "a.edge", lambda context: f"--ctx-size {context}")
    assert str(caught.value) == (
        "a.edge: needs 319.1 MB at a context of 8192, 200.0 MB are available. What fits: --ctx-size 2176. "
        "To try it all the same: --ignore-budget"
    )


def test_weights_alone_over_the_budget_say_that_no_context_fits() -> None:
    plan = plan_memory(sizes(weights=500 * MB), context=32, longest_context=8192, available=200 * MB)
    assert plan.largest_context is None
    with pytest.raises(BudgetError, match="No context fits: free some memory, or build a smaller tier"):
        check_budget(plan, "a.edge", lambda context: f"--ctx-size {context}")


@given(
    available=st.integers(1 * MB, 2000 * MB),
    longest=st.integers(1, 100_000),
    per_token=st.integers(0, 100_000),
)
def test_the_largest_context_fits_and_one_page_more_does_not(available: int, longest: int, per_token: int) -> None:
    model = sizes(per_token=per_token)
    largest = plan_memory(model, context=1, longest_context=longest, available=available).largest_context
    if largest is None:
        assert model.total(min(longest, PAGE_TOKENS)) > available
        return
    assert largest <= longest
    assert model.total(largest) <= available
    assert largest == longest or model.total(min(longest, largest + PAGE_TOKENS)) > available
