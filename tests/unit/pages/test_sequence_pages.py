"""Page tables of a sequence: growing, windows, rewinding; and that a fitted pool never refuses its load."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.contract import EMPTY, PAGE_TOKENS, SEAL_TOKENS
from edge.pages.geometry import ExtentKind, GroupPages, PoolSize, extents_of, first_page, pages_for, pages_needed, slabs_for
from edge.pages.pool import Pool
from edge.pages.sequence import SequencePages, word_offset

FULL = GroupPages(0, ExtentKind("fp16", 1024), ExtentKind("fp16", 1024))
WINDOW = GroupPages(40, ExtentKind("fp16", 5120), ExtentKind("fp16", 5120))
GROUPS = (FULL, WINDOW)
MAX_PAGES = 32


def make_pool() -> Pool:
    return Pool(PoolSize(64 * 10240, 10240))


def grow(pool: Pool, pages: SequencePages, length: int, groups: tuple[GroupPages, ...] = GROUPS) -> np.ndarray:
    with pool.reserve(extents_of(groups, (pages.missing(length),) * len(groups))) as lease:
        words = pages.place(length, lease)
        seen = words.copy()  # by the step; what is behind a window goes when it commits
        lease.commit()
    pages.commit(words, length)
    return seen


def held_pages(words: np.ndarray) -> list[list[int]]:
    """Pages present, per group."""
    return [np.flatnonzero((group != EMPTY).all(axis=1)).tolist() for group in words]


def test_a_step_that_fails_leaves_the_table_as_it_was() -> None:
    pool = make_pool()
    pages = SequencePages(pool, GROUPS, MAX_PAGES)
    grow(pool, pages, 33)
    before = pages.extents()
    with pool.reserve(extents_of(GROUPS, (2, 2))) as lease:
        pages.place(128, lease)  # and then the engine fails: no commit
    assert pages.extents() == before and pages.length == 33
    pool.check(before)


def test_pages_behind_the_window_are_freed_and_no_others() -> None:
    pool = make_pool()
    pages = SequencePages(pool, GROUPS, MAX_PAGES)
    for length in range(1, 300):
        words = grow(pool, pages, length)
        full, window = held_pages(words)
        assert full == list(range(pages_for(length)))
        # The step that has just run asked at `length - 1`: everything that it could see stands in its table.
        assert window[0] <= max(0, length - 1 - WINDOW.window + 1) // PAGE_TOKENS
        assert window == list(range(window[0], pages_for(length)))
        kept = len(pages.extents()) // 2 - pages_for(length)
        assert kept == pages_for(length) - first_page(WINDOW.window, length)
    pages.release()
    pool.check(Counter())


def test_words_tell_offsets_that_are_not_shared() -> None:
    pool = make_pool()
    pages = [SequencePages(pool, GROUPS, MAX_PAGES) for _ in range(3)]
    offsets = [word_offset(int(word)) for each in pages for word in grow(pool, each, 70).ravel() if word != EMPTY]
    assert len(offsets) == len(set(offsets)) == 3 * 2 * 2 * 3


def test_rewinding_frees_what_is_behind_and_keeps_what_the_window_needs() -> None:
    pool = make_pool()
    pages = SequencePages(pool, GROUPS, MAX_PAGES)
    grow(pool, pages, 230)
    assert pages.can_rewind(230) and pages.can_rewind(199)
    assert not pages.can_rewind(198), "its window begins in a page that was freed"
    pages.rewind(199)
    assert pages.length == 199 and pages.missing(224) == 0 and pages.missing(225) == 1
    pool.check(pages.extents())


def test_only_full_attention_can_rewind_to_anywhere() -> None:
    pool = make_pool()
    pages = SequencePages(pool, (FULL,), MAX_PAGES)
    grow(pool, pages, 200, (FULL,))
    assert all(pages.can_rewind(length) for length in range(201)) and not pages.can_rewind(201)
    pages.rewind(0)
    pool.check(Counter())


@settings(max_examples=60, deadline=None)
@given(
    windows=st.lists(st.sampled_from([0, 8, 40, 130, 200]), min_size=1, max_size=3, unique=True),
    sequences=st.integers(1, 3),
    context=st.integers(1, 700),
    data=st.data(),
)
def test_a_fitted_pool_never_refuses_its_load(windows: list[int], sequences: int, context: int, data: st.DataObject) -> None:
    groups = tuple(
        GroupPages(window, ExtentKind("fp16", size), ExtentKind("fp16", size))
        for window, size in zip(sorted(windows), (1024, 5120, 2560), strict=False)
    )
    extents = extents_of(groups, tuple(sequences * count for count in pages_needed(groups, context)))
    pool = Pool(PoolSize(slabs_for(extents, 10240) * 10240, 10240))
    live = [SequencePages(pool, groups, pages_for(context)) for _ in range(sequences)]
    for _ in range(40):
        pages = data.draw(st.sampled_from(live))
        border = (pages.length // SEAL_TOKENS + 1) * SEAL_TOKENS
        end = min(context, border, pages.length + data.draw(st.sampled_from([1, 31, SEAL_TOKENS])))
        if end == pages.length:
            pages.release()
            continue
        until = pages.missing_until(context, SEAL_TOKENS)
        new = pages.missing(end)
        assert all(new <= most for most in until)
        grow(pool, pages, end, groups)
    pool.check(sum((pages.extents() for pages in live), Counter()))
