"""When an answer reads fewer pages, how many, and what it does when that leaves out too much."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.contract import PAGE_TOKENS, SEAL_TOKENS
from edge.pages.read_budget import (
    MOST_OMITTED,
    PROBE_EVERY,
    ReadAll,
    ReadAuto,
    ReadBudget,
    Reading,
    ReadTokens,
    parse_read_budget,
)

BUDGETS = st.one_of(st.just(ReadAuto()), st.builds(ReadTokens, st.integers(SEAL_TOKENS, 5000)))
LENGTHS = st.integers(1, 40_000)


def settled(budget: ReadBudget, length: int, omitted: float, tokens: int) -> tuple[list[int], Reading]:
    """What so many tokens at `length` read, every probe telling `omitted`."""
    reading, reads = Reading(budget), []
    for _ in range(tokens):
        reads.append(reading.wanted(length))
        reading = reading.after(reads[-1], omitted if reads[-1] < 0 else 0.0)
    return reads, reading


@pytest.mark.parametrize("text", ["all", "auto", "128", "2048"])
def test_a_budget_is_what_its_words_say(text: str) -> None:
    assert str(parse_read_budget(text)) == text


@pytest.mark.parametrize("text", ["", "none", "-1", "0", "127", "1.5", "1k", "١٢٨"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not all, auto or a number|at least 128"):
        parse_read_budget(text)


def test_auto_is_a_quarter_of_the_text_and_1024_tokens_at_least() -> None:
    for length, pages in ((4095, 0), (4096, 31), (5000, 35), (8192, 63), (32768, 255)):
        assert abs(Reading(ReadAuto()).wanted(length)) == pages, length


@given(LENGTHS)
def test_all_reads_all(length: int) -> None:
    assert Reading(ReadAll()).wanted(length) == 0


@given(BUDGETS, LENGTHS, st.lists(st.floats(0.0, 1.0), max_size=200))
def test_what_is_read_is_whole_blocks_within_the_budget_and_half_of_the_text(
    budget: ReadTokens | ReadAuto, length: int, told: list[float]
) -> None:
    reading = Reading(budget)
    for omitted in told:
        read = reading.wanted(length)
        if read:
            tokens = (abs(read) + 1) * PAGE_TOKENS  # the first page too
            assert tokens % SEAL_TOKENS == 0 and tokens <= budget.of(length) << reading.doublings <= length // 2
            assert 4 * budget.of(length) <= length
        reading = reading.after(read, omitted)


@given(BUDGETS, LENGTHS, st.floats(0.0, MOST_OMITTED))
def test_a_budget_that_leaves_out_little_stays_and_is_probed_every_64_tokens(
    budget: ReadTokens | ReadAuto, length: int, omitted: float
) -> None:
    reads, reading = settled(budget, length, omitted, 2 * PROBE_EVERY + 1)
    assert len({abs(read) for read in reads}) == 1 and reading.doublings == 0
    if reads[0]:
        assert [place for place, read in enumerate(reads) if read < 0] == [0, PROBE_EVERY, 2 * PROBE_EVERY]


@given(BUDGETS, LENGTHS, st.floats(MOST_OMITTED, 1.0, exclude_min=True))
def test_a_budget_that_leaves_out_too_much_doubles_until_all_is_read(
    budget: ReadTokens | ReadAuto, length: int, omitted: float
) -> None:
    reads, _ = settled(budget, length, omitted, 20)
    widened = [abs(read) for read in reads if read]
    assert all(read < 0 for read in reads if read), "each wider budget is probed at once"
    assert all(2 * a - 3 <= b <= 2 * a + 5 for a, b in pairwise(widened)) and reads[-1] == 0


def test_one_probe_above_the_limit_is_forgiven_by_those_before_it() -> None:
    reading = Reading(ReadAuto())
    for omitted, doublings in ((0.01, 0), (0.01, 0), (0.035, 0), (0.03, 1)):
        while (read := reading.wanted(8192)) > 0:
            reading = reading.after(read, 0.0)
        reading = reading.after(read, omitted)
        assert reading.doublings == doublings
