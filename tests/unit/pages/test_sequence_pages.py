"""Page tables of a sequence: growing, windows, rewinding; and that a fitted pool never refuses its load."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.contract import EMPTY, FORMAT_SHIFT, PAGE_FORMATS, PAGE_TOKENS, SEAL_TOKENS, word_offset
from edge.pages.fit import PoolSize, peak_extents, slabs_for
from edge.pages.geometry import ExtentKind, GroupPages, PageCount, PageKind, extents_of, first_page, pages_for
from edge.pages.pool import Pool
from edge.pages.sequence import SequencePages

OPEN, LARGE = (
    PageKind(ExtentKind("fp16", 1024), ExtentKind("fp16", 1024)),
    PageKind(ExtentKind("fp16", 5120), ExtentKind("fp16", 5120)),
)
SEALED = PageKind(ExtentKind("int8", 768), ExtentKind("int4", 512))
LARGE_SEALED = PageKind(ExtentKind("int8", 2560), ExtentKind("int4", 1536))
GROUPS = (GroupPages(0, OPEN, OPEN), GroupPages(40, LARGE, LARGE))
SEALING = (GroupPages(0, OPEN, SEALED), GroupPages(200, LARGE, LARGE_SEALED))
WINDOW = GROUPS[1]
MAX_PAGES = 32


def make_pool() -> Pool:
    return Pool(PoolSize(64 * 10240, 10240))


def grow(pool: Pool, pages: SequencePages, length: int, groups: tuple[GroupPages, ...] = GROUPS) -> np.ndarray:
    with pool.reserve(pages.step_extents(length)) as lease:
        words, moves = pages.place(length, lease)
        assert all(not waiting for waiting in lease._waiting.values()), "more was asked for than the step takes"
        assert len(moves) == 2 * sum(pages.to_seal())
        seen = words.copy()  # by the step; what is behind a window goes when it commits
        lease.commit()
    pages.commit(words, length)
    return seen


def formats(words: np.ndarray) -> list[tuple[str, str]]:
    """(K, V) of the pages of one group that stand."""
    names = {number: name for name, number in PAGE_FORMATS.items()}
    return [(names[int(key) >> FORMAT_SHIFT], names[int(value) >> FORMAT_SHIFT]) for key, value in words if key != EMPTY]


def held_pages(words: np.ndarray) -> list[list[int]]:
    """Pages present, per group."""
    return [np.flatnonzero((group != EMPTY).all(axis=1)).tolist() for group in words]


def test_a_step_that_fails_leaves_the_table_as_it_was() -> None:
    pool = make_pool()
    pages = SequencePages(pool, GROUPS, MAX_PAGES)
    grow(pool, pages, 33)
    before = pages.extents()
    with pool.reserve(extents_of(GROUPS, (PageCount(3, 0),) * 2)) as lease:
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
    pages = SequencePages(pool, GROUPS[:1], MAX_PAGES)
    grow(pool, pages, 200, GROUPS[:1])
    assert all(pages.can_rewind(length) for length in range(201)) and not pages.can_rewind(201)
    pages.rewind(0)
    pool.check(Counter())


def test_a_border_seals_the_block_before_the_last_and_frees_what_it_was() -> None:
    pool = make_pool()
    pages = SequencePages(pool, SEALING, MAX_PAGES)
    open_, sealed = ("fp16", "fp16"), ("int8", "int4")
    for end in (128, 256):
        grow(pool, pages, end, SEALING)
    assert pages.to_seal() == (3, 3), "page 0 never; the window of 200 still begins in page 1"
    words = grow(pool, pages, 257, SEALING)
    assert formats(words[0]) == [open_, *[sealed] * 3, *[open_] * 5]
    assert formats(words[1]) == [*[sealed] * 3, *[open_] * 5]
    pool.check(pages.extents())
    assert pages.to_seal() == (0, 0)
    grow(pool, pages, 384, SEALING)
    assert pages.to_seal() == (4, 3), "page 4 is behind the window"
    words = grow(pool, pages, 400, SEALING)
    assert formats(words[0]) == [open_, *[sealed] * 7, *[open_] * 5]
    pool.check(pages.extents())
    pages.release()
    pool.check(Counter())


def test_a_step_that_seals_and_fails_leaves_everything_as_it_was() -> None:
    pool = make_pool()
    pages = SequencePages(pool, SEALING, MAX_PAGES)
    for end in (128, 256):
        grow(pool, pages, end, SEALING)
    before, to_seal = pages.extents(), pages.to_seal()
    with pool.reserve(extents_of(SEALING, (PageCount(1, 3), PageCount(1, 3)))) as lease:
        pages.place(270, lease)  # and then the engine fails: no commit
    assert pages.extents() == before and pages.to_seal() == to_seal and pages.length == 256
    pool.check(before)


def test_a_sequence_goes_back_only_to_where_all_that_is_read_in_fp16_still_is() -> None:
    pool = make_pool()
    pages = SequencePages(pool, SEALING[:1], MAX_PAGES)
    for end in (128, 256, 384, 500):
        grow(pool, pages, end, SEALING[:1])
    # Pages 1 to 7 are sealed. At 384 and behind they are read so; at 383 the pages 4 to 7 would be read in fp16.
    assert [length for length in range(501) if pages.can_rewind(length)] == [*range(33), *range(384, 501)]
    assert [pages.rewind_point(length) for length in (500, 384, 383, 200, 33, 32, 5, 0)] == [500, 384, 32, 32, 32, 32, 5, 0]
    pages.rewind(390)
    assert pages.to_seal() == (0,) and pages.missing(416) == 0
    pool.check(pages.extents())
    pages.rewind(32)
    assert pages.to_seal() == (0,) and pages.held() == 1
    for end in (128, 256, 300):
        words = grow(pool, pages, end, SEALING[:1])
    assert formats(words[0]) == [("fp16", "fp16"), *[("int8", "int4")] * 3, *[("fp16", "fp16")] * 6]
    pool.check(pages.extents())


def test_a_border_that_no_step_has_passed_has_sealed_nothing() -> None:
    pool = make_pool()
    pages = SequencePages(pool, SEALING[:1], MAX_PAGES)
    for end in (128, 256):
        grow(pool, pages, end, SEALING[:1])
    assert all(pages.can_rewind(length) for length in range(257)), "the step at 256 has not been"


@settings(max_examples=60, deadline=None)
@given(
    windows=st.lists(st.sampled_from([0, 8, 40, 130, 200]), min_size=1, max_size=3, unique=True),
    sequences=st.integers(1, 3),
    context=st.integers(1, 1000),
    seals=st.booleans(),
    data=st.data(),
)
def test_a_fitted_pool_never_refuses_its_load(
    windows: list[int], sequences: int, context: int, seals: bool, data: st.DataObject
) -> None:
    kinds = ((OPEN, SEALED), (LARGE, LARGE_SEALED), (OPEN, LARGE_SEALED))
    groups = tuple(
        GroupPages(window, kind, sealed if seals else kind)
        for window, (kind, sealed) in zip(sorted(windows), kinds, strict=False)
    )
    pool = Pool(PoolSize(slabs_for(peak_extents(groups, context, sequences), 10240) * 10240, 10240))
    live = [SequencePages(pool, groups, pages_for(context)) for _ in range(sequences)]
    for _ in range(40):
        pages = data.draw(st.sampled_from(live))
        border = (pages.length // SEAL_TOKENS + 1) * SEAL_TOKENS
        end = min(context, border, pages.length + data.draw(st.sampled_from([1, 31, SEAL_TOKENS])))
        if end == pages.length:
            pages.rewind(pages.rewind_point(data.draw(st.integers(0, pages.length))))
            continue
        until = pages.extents_until(context, SEAL_TOKENS)
        assert all(count <= until[kind] for kind, count in pages.step_extents(end).items())
        grow(pool, pages, end, groups)
        pool.check(sum((each.extents() for each in live), Counter()))
