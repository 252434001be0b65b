"""Extents of files behind a pool: anybody's, nobody's own, and no part of its account."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.contract import EMPTY, OFFSET_UNIT, PAGE_FORMATS, PAGE_TOKENS, page_word, word_offset
from edge.errors import BudgetError
from edge.pages.fit import LARGEST_POOL, PoolSize, fit_pool
from edge.pages.geometry import (
    ExtentKind,
    GroupPages,
    PageKind,
    first_page,
    next_border,
    own_tokens,
    pages_for,
    sealed_end,
)
from edge.pages.pool import Pool
from edge.pages.prefix_cache import Cut
from edge.pages.sequence import SequencePages

OPEN = PageKind(ExtentKind("fp16", 2048), ExtentKind("fp16", 2048))
SEALED = PageKind(ExtentKind("int8", 1280), ExtentKind("int4", 768))
FULL, WINDOW = GroupPages(0, OPEN, SEALED), GroupPages(200, OPEN, SEALED)
MODELS = {
    "exact": (GroupPages(0, OPEN, OPEN),),
    "exact window": (GroupPages(0, OPEN, OPEN), GroupPages(200, OPEN, OPEN)),
    "sealing": (FULL,),
    "sealing window": (FULL, WINDOW),
    "window": (WINDOW,),
}


def pinned_cut(pool: Pool, groups: tuple[GroupPages, ...], length: int) -> Cut:
    """A cut whose pages all lie in a file."""
    at = pool.size.pool_bytes + OFFSET_UNIT
    words = np.full((len(groups), length // PAGE_TOKENS, 2), EMPTY, np.int32)
    sealed = sealed_end(length - 1)
    for index, group in enumerate(groups):
        for page in range(first_page(group.window, length), length // PAGE_TOKENS):
            kind = group.sealed if 1 <= page < sealed else group.open
            for side, extent in enumerate((kind.key, kind.value)):
                pool.pin(at, extent)
                words[index, page, side] = page_word(PAGE_FORMATS[extent.page_format], at)
                at += extent.bytes
    return Cut(length, words, sealed)


def grow(pool: Pool, pages: SequencePages, groups: tuple[GroupPages, ...], length: int) -> None:
    """By one step. A step that writes to a page of a file is a bug of ours."""
    with pool.reserve(pages.step_extents(length)) as lease:
        words, moves = pages.place(length, lease)
        written = words[:, pages.length // PAGE_TOKENS : pages_for(length)]
        assert all(word_offset(word) < pool.size.pool_bytes for word in written.ravel().tolist())
        assert all(word_offset(move.target) < pool.size.pool_bytes for move in moves)
        lease.commit()
    pages.commit(words, length)


def test_extents_of_files_are_shared_by_all_and_counted_apart() -> None:
    pool = Pool(PoolSize(8 * 8192, 8192))
    place = pool.size.pool_bytes
    pool.pin(place, OPEN.key)
    pool.pin(place, OPEN.key)
    assert pool.references(place) > 1 and not pool.is_cached(place)
    pool.share([place, place])
    pool.keep([place])
    pool.check(Counter({place: 2}), Counter({place: 1}))
    pool.release(place)
    pool.check(Counter({place: 1}), Counter({place: 1}))
    pool.let_go([place])
    pool.release(place)
    pool.check(Counter())
    assert pool.references(place) > 1 and not pool.is_cached(place)
    counts = pool.counts()
    assert (counts.baked_bytes, counts.used_bytes, counts.cached_bytes) == (OPEN.key.bytes, 0, 0)


def test_a_place_that_no_word_reaches_is_refused() -> None:
    pool = Pool(PoolSize(8192, 8192))
    pool.pin(LARGEST_POOL - OPEN.key.bytes, OPEN.key)
    with pytest.raises(BudgetError, match=r"which a page table reaches\. Use fewer prefixes"):
        pool.pin(LARGEST_POOL, OPEN.key)


@pytest.mark.parametrize("model", MODELS)
@given(shared=st.integers(1, 40), more=st.integers(1, 700), chunks=st.lists(st.integers(1, 128), min_size=1, max_size=8))
@settings(max_examples=40)
def test_a_pool_for_its_own_tokens_holds_a_sequence_behind_a_prefix(
    model: str, shared: int, more: int, chunks: list[int]
) -> None:
    groups, prefix = MODELS[model], shared * PAGE_TOKENS
    context = prefix + more
    pool = Pool(fit_pool(groups, own_tokens(context, prefix), 1, 8192))
    pages = SequencePages(pool, groups, pages_for(context))
    for _ in range(2):  # the second time behind what the first one left
        pages.adopt(pinned_cut(pool, groups, prefix))
        turn = 0
        while pages.length < context:
            grow(pool, pages, groups, min(context, pages.length + chunks[turn % len(chunks)], next_border(pages.length)))
            pool.check(pages.extents())
            turn += 1
        pages.release()
        pool.check(Counter())
    assert pool.used_bytes == 0 and pool.counts().baked_bytes > 0


@given(shared=st.integers(1, 40), more=st.integers(1, 700), back=st.integers(0, 700))
def test_a_sequence_rewound_into_a_prefix_writes_to_pages_of_its_own(shared: int, more: int, back: int) -> None:
    groups, prefix = MODELS["sealing window"], shared * PAGE_TOKENS
    pool = Pool(PoolSize(1 << 21, 8192))
    pages = SequencePages(pool, groups, 128)
    pages.adopt(pinned_cut(pool, groups, prefix))
    while pages.length < prefix + more:
        grow(pool, pages, groups, min(prefix + more, next_border(pages.length)))
    point = pages.rewind_point(max(0, pages.length - back))
    pages.rewind(point)
    while pages.length < prefix + more:
        grow(pool, pages, groups, min(prefix + more, next_border(pages.length)))
    pool.check(pages.extents())
