"""Cuts of sequences: what is kept of them, who finds them, when they go; and every case that must be shortened."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.contract import EMPTY, PAGE_TOKENS
from edge.pages.fit import PoolSize
from edge.pages.geometry import ExtentKind, GroupPages, PageKind, first_page, next_border, pages_for, sealed_end
from edge.pages.pool import Pool
from edge.pages.prefix_cache import Cut, PrefixCache, cut_border
from edge.pages.sequence import SequencePages

OPEN = PageKind(ExtentKind("fp16", 1024), ExtentKind("fp16", 1024))
SEALED = PageKind(ExtentKind("int8", 768), ExtentKind("int4", 512))
FULL, WINDOW = GroupPages(0, OPEN, OPEN), GroupPages(64, OPEN, OPEN)
SEALING, SEALING_WINDOW = GroupPages(0, OPEN, SEALED), GroupPages(200, OPEN, SEALED)
Groups = tuple[GroupPages, ...]
MAX_PAGES = 32


def text(length: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(50_000), k=length)


class Bench:
    """Sequences in one pool beside a cache."""

    def __init__(self, *groups: GroupPages, pages: int = 400) -> None:
        self.groups: Groups = groups
        self.pool = Pool(PoolSize(pages * 10240, 10240))
        self.cache = PrefixCache(self.pool)
        self.live: list[SequencePages] = []

    def open(self) -> SequencePages:
        self.live.append(SequencePages(self.pool, self.groups, MAX_PAGES))
        return self.live[-1]

    def grow(self, pages: SequencePages, end: int, ids: list[int] | None = None, cuts: tuple[int, ...] = ()) -> None:
        """Step by step to `end`, with cuts of `ids` on the way."""
        while pages.length < end:
            step = min(end, next_border(pages.length))
            with self.pool.reserve(pages.step_extents(step)) as lease:
                words, _ = pages.place(step, lease)
                lease.commit()
            for cut in cuts:
                if pages.length < cut <= step:
                    assert ids is not None
                    self.cache.publish(ids, pages.cut(cut, words))
            pages.commit(words, step)
            self.check()

    def begin(self, ids: list[int], cut: Cut) -> SequencePages:
        pages = self.open()
        self.cache.use(ids, cut)
        pages.adopt(cut)
        self.check()
        return pages

    def length_found(self, ids: list[int], most: int | None = None) -> int:
        cut = self.cache.find(ids, len(ids) - 1 if most is None else most)
        return 0 if cut is None else cut.length

    def check(self) -> None:
        self.pool.check(sum((pages.extents() for pages in self.live), Counter()), self.cache.extents())


def test_a_sequence_that_adopts_a_cut_stands_where_the_first_one_stood() -> None:
    bench = Bench(SEALING, SEALING_WINDOW)
    ids = text(700)
    first = bench.open()
    bench.grow(first, 700, ids, (64, 384, 416))
    assert len(bench.cache) == 3
    for length in (64, 384, 416):
        cut = bench.cache.find(ids, length)
        assert cut is not None and cut.length == length and cut.sealed == sealed_end(length - 1)
        second, alone = bench.begin(ids, cut), bench.open()
        bench.grow(alone, length)
        for (group, kind), end in zip(enumerate(bench.groups), (length // PAGE_TOKENS,) * 2, strict=True):
            seen = first_page(kind.window, length)
            assert (second.words()[group, seen:end] != EMPTY).all() and (second.words()[group, :seen] == EMPTY).all()
        assert second.bytes_by_format() == alone.bytes_by_format()
        assert second.to_seal() == alone.to_seal()
        # What the cut holds too is sealed all the same, and no new page may stand where it stood.
        begins = (max(first_page(kind.window, length), cut.sealed, 1) for kind in bench.groups)
        shared = sum(max(0, min(sealed_end(699), length // PAGE_TOKENS) - begin) for begin in begins)
        more = Counter({bench.groups[0].open.key: 2 * shared})
        assert second.extents_until(700, 128) == alone.extents_until(700, 128) + more
        bench.grow(second, 700)
        assert second.bytes_by_format() == first.bytes_by_format()
    assert (bench.cache.hits, bench.cache.hit_tokens) == (3, 64 + 384 + 416)


def test_shared_pages_are_sealed_into_new_extents_and_never_written() -> None:
    bench = Bench(SEALING)
    ids = text(256)
    first = bench.open()
    bench.grow(first, 256, ids, (256,))
    cut = bench.cache.find(ids, 256)
    assert cut is not None
    second = bench.begin(ids, cut)
    for pages in (first, second):
        assert pages.to_seal() == (3,) and pages.sealing().places == (0,)
        bench.grow(pages, 300)
    shared = set(cut.offsets())
    assert not shared & (set(first.extents()) - set(second.extents())), "what was sealed left the shared extents"
    assert set(first.extents()) & set(second.extents()) <= shared
    for pages in (first, second):
        pages.release()
    assert bench.pool.used_bytes == bench.pool.cached_bytes == len(shared) * 1024
    bench.check()


@pytest.mark.parametrize(("position", "border"), [(0, 0), (31, 0), (32, 32), (63, 32), (130, 128), (255, 224)])
def test_a_cut_lies_at_the_page_border_at_or_before_its_position(position: int, border: int) -> None:
    assert cut_border(position) == border


def test_the_longest_cut_that_the_prompt_leaves_a_token_of_is_found() -> None:
    bench = Bench(FULL)
    ids = text(300)
    bench.grow(bench.open(), 300, ids, (32, 128, 256))
    assert bench.length_found(ids) == 256
    assert bench.length_found(ids[:256]) == 128, "the last token is wanted for its logits"
    assert bench.length_found(ids[:257]) == 256
    assert bench.length_found(ids[:200]) == 128, "the prompt is shorter than the cut"
    assert bench.length_found(ids[:32]) == bench.length_found(ids[:5]) == 0
    assert bench.length_found([*ids[:200], ids[200] + 1, *ids[201:]]) == 128, "another token"
    assert bench.length_found([ids[0] + 1, *ids[1:]]) == 0
    assert bench.length_found(ids, 127) == 32


def test_a_cut_whose_pages_were_freed_behind_a_window_is_none() -> None:
    bench = Bench(FULL, WINDOW)
    pages = bench.open()
    bench.grow(pages, 255)
    # At 254 the window still begins in page 5 (its 64 positions are 191 to 254); at 255 it has left it.
    assert first_page(64, 224) == 5 and first_page(64, 255) == 6
    assert pages.cut(224, pages.words()) is None and pages.cut(192, pages.words()) is None
    again = bench.open()
    bench.grow(again, 250)
    cut = again.cut(224, again.words())
    assert cut is not None and (cut.words[1, :5] == EMPTY).all() and (cut.words[1, 5:] != EMPTY).all()


def test_a_cut_whose_pages_are_sealed_beyond_its_border_is_none() -> None:
    bench = Bench(SEALING)
    pages = bench.open()
    bench.grow(pages, 384)
    assert pages.cut(288, pages.words()) is not None
    bench.grow(pages, 390)  # pages 4 to 7 are sealed now: a query at 288 reads them in fp16, one at 384 does not
    assert pages.cut(288, pages.words()) is None and pages.cut(352, pages.words()) is None
    cut = pages.cut(384, pages.words())
    assert cut is not None and cut.sealed == 8
    pages.release()
    bench.check()


def test_a_cut_at_a_border_is_kept_in_either_form_and_goes_on_alike() -> None:
    bench = Bench(SEALING)
    ids, other = text(400), text(400, 1)
    before, behind = bench.open(), bench.open()
    bench.grow(before, 384, ids, (384,))
    bench.grow(behind, 400)
    bench.cache.publish(other, behind.cut(384, behind.words()))
    for tokens, sealed in ((ids, 4), (other, 8)):
        cut = bench.cache.find(tokens, 399)
        assert cut is not None and (cut.length, cut.sealed) == (384, sealed)
        pages = bench.begin(tokens, cut)
        assert pages.to_seal() == (8 - sealed,)
        bench.grow(pages, 400)
        assert pages.bytes_by_format() == behind.bytes_by_format()


def test_a_rewind_never_ends_in_a_page_that_a_cut_holds() -> None:
    bench = Bench(FULL)
    ids = text(100)
    pages = bench.open()
    bench.grow(pages, 100, ids, (96,))
    assert [pages.rewind_point(length) for length in (100, 97, 96, 70, 64, 20)] == [100, 97, 96, 64, 64, 0]
    bench.cache.clear()
    assert [pages.rewind_point(length) for length in (100, 70, 20)] == [100, 70, 20]


def test_the_least_recently_used_cut_goes_first_and_a_longer_one_before_its_front() -> None:
    bench = Bench(FULL)
    one, two = text(256), text(256, 1)
    for ids in (one, two):
        pages = bench.open()
        bench.grow(pages, 256, ids, (64, 128, 256))
        pages.release()
    cut = bench.cache.find(one, 128)
    assert cut is not None
    bench.begin(one, cut).release()
    gone = []
    while bench.pool.cached_bytes:
        before = {(n, c) for n, ids in enumerate((one, two)) for c in (64, 128, 256) if bench.length_found(ids, c) == c}
        bench.cache.evict()
        bench.check()
        gone += before - {(n, c) for n, ids in enumerate((one, two)) for c in (64, 128, 256) if bench.length_found(ids, c) == c}
    assert gone == [(0, 256), (1, 256), (1, 128), (1, 64), (0, 128), (0, 64)]
    assert bench.pool.used_bytes == 0 and bench.cache._root.children == {}, "ids go with their cuts"


def test_a_cut_whose_extents_others_hold_stays_while_another_helps() -> None:
    bench = Bench(FULL)
    busy, done = text(128), text(128, 1)
    pages = bench.open()
    bench.grow(pages, 128, busy, (128,))
    gone = bench.open()
    bench.grow(gone, 128, done, (128,))
    gone.release()
    bench.cache.evict()
    assert (bench.length_found(busy, 128), bench.length_found(done, 128)) == (128, 0)
    assert bench.pool.cached_bytes == 0 and len(bench.cache) == 1
    assert not bench.cache.evict()
    assert bench.cache.evict(set(pages.extents())) and bench.length_found(busy, 128) == 0


def test_publishing_again_keeps_the_cut_that_is_there() -> None:
    bench = Bench(SEALING)
    ids = text(300)
    for _ in range(2):
        pages = bench.open()
        bench.grow(pages, 300, ids, (288,))
        pages.release()
    assert len(bench.cache) == 1
    bench.check()


def test_a_cache_that_is_off_keeps_nothing_and_finds_what_is_pinned() -> None:
    bench = Bench(FULL)
    bench.cache = PrefixCache(bench.pool, is_on=False)
    ids = text(64)
    bench.grow(bench.open(), 64, ids, (64,))
    assert len(bench.cache) == 0 and bench.length_found(ids, 64) == 0
    words = np.arange(4, dtype=np.int32).reshape(1, 2, 2)
    bench.cache.pin(ids, [Cut(64, words, 0)])
    bench.cache.clear()
    assert bench.length_found(ids, 64) == 64 and bench.cache.extents() == Counter()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_order_of_growing_cutting_adopting_and_evicting_adds_up(data: st.DataObject) -> None:
    groups = data.draw(st.sampled_from([(FULL,), (FULL, WINDOW), (SEALING,), (SEALING, SEALING_WINDOW)]))
    bench = Bench(*groups, pages=2000)
    texts = [text(600, seed) for seed in range(2)]
    texts.append([*texts[0][:300], *texts[1][300:]])
    of: dict[int, list[int]] = {}
    for _ in range(data.draw(st.integers(1, 25))):
        action = data.draw(st.sampled_from(["begin", "grow", "grow", "rewind", "end", "evict"]))
        if action == "begin" or not bench.live:
            ids = data.draw(st.sampled_from(texts))
            cut = bench.cache.find(ids, data.draw(st.integers(0, 600)))
            pages = bench.open() if cut is None else bench.begin(ids, cut)
            of[id(pages)] = ids
        elif action == "evict":
            if bench.pool.cached_bytes:
                bench.cache.evict()
        else:
            pages = data.draw(st.sampled_from(bench.live))
            if action == "grow":
                end = min(600, pages.length + data.draw(st.integers(1, 200)))
                wanted = tuple(data.draw(st.lists(st.integers(1, 18), max_size=3)))
                bench.grow(pages, end, of[id(pages)], tuple(PAGE_TOKENS * page for page in wanted))
            elif action == "rewind":
                pages.rewind(pages.rewind_point(data.draw(st.integers(0, pages.length))))
            else:
                if at := cut_border(pages.length):
                    bench.cache.publish(of[id(pages)], pages.cut(at, pages.words()))
                pages.release()
                bench.live.remove(pages)
        bench.check()
        for pages in bench.live:
            assert pages.missing(pages.length) == 0 and pages_for(pages.length) == pages._end
    for pages in bench.live:
        pages.release()
    while bench.pool.cached_bytes:
        bench.cache.evict()
    assert bench.pool.used_bytes == 0
