"""The pages of one sequence. Owns: its page-table words and its length. Needs: pool. Never: token ids, order."""

from __future__ import annotations

from collections import Counter

import numpy as np

from edge.contract import EMPTY, OFFSET_MASK, OFFSET_UNIT, PAGE_FORMATS, page_word
from edge.pages.geometry import GroupPages, first_page, pages_for, peak_pages
from edge.pages.pool import Lease, Pool


def word_offset(word: int) -> int:
    """Byte offset in the pool of a page-table word."""
    return (word & OFFSET_MASK) * OFFSET_UNIT


class SequencePages:
    """Pages that hold K and V of positions 0 .. length - 1, less those behind a group's window.

    Growing takes two calls, so that a step of the engine that fails changes nothing: `place` gives the words of the state
    after the step, `commit` adopts them.
    """

    def __init__(self, pool: Pool, groups: tuple[GroupPages, ...], max_pages: int) -> None:
        self.length = 0  # tokens whose K and V are in the pages
        self._pool = pool
        self._groups = groups
        self._words = np.full((len(groups), max_pages, 2), EMPTY, np.int32)
        self._first = [0] * len(groups)  # first page held, per group
        self._end = 0  # pages held end here, in every group

    def missing(self, length: int) -> int:
        """Pages, in each layer group, that must be reserved before the sequence can have `length` tokens."""
        return max(0, pages_for(length) - self._end)

    def missing_until(self, length: int, chunk_tokens: int) -> tuple[int, ...]:
        """Pages of each layer group beyond those held that the way to `length` tokens takes at most, chunk by chunk."""
        if not self.missing(length):
            return (0,) * len(self._groups)
        return tuple(
            max(0, min(peak_pages(group.window, length, chunk_tokens) - (self._end - first), self.missing(length)))
            for group, first in zip(self._groups, self._first, strict=True)
        )

    def held(self) -> int:
        """Pages held, all layer groups together."""
        return sum(self._end - first for first in self._first)

    def place(self, length: int, lease: Lease) -> np.ndarray:
        """Words int32 [groups, max_pages, 2] of the state with `length` tokens; new pages are taken from `lease`. Not to be
        written to: without new pages, as in most steps, they are the sequence's own."""
        if not self.missing(length):
            return self._words
        words = self._words.copy()
        for index in range(self._end, pages_for(length)):
            for group, pages in enumerate(self._groups):
                words[group, index, 0] = page_word(PAGE_FORMATS[pages.key.page_format], lease.take(pages.key))
                words[group, index, 1] = page_word(PAGE_FORMATS[pages.value.page_format], lease.take(pages.value))
        return words

    def commit(self, words: np.ndarray, length: int) -> None:
        """Adopts what `place` gave for this length, then frees the pages that no later query sees."""
        if self.missing(length):
            self._words[:] = words
            self._end = pages_for(length)
        self.length = length
        for group, pages in enumerate(self._groups):
            first = first_page(pages.window, length)
            self._free(group, self._first[group], first)
            self._first[group] = max(self._first[group], first)

    def can_rewind(self, length: int) -> bool:
        """Whether every page that a query at `length` sees still stands."""
        return length <= self.length and all(
            first <= first_page(group.window, length) for group, first in zip(self._groups, self._first, strict=True)
        )

    def rewind(self, length: int) -> None:
        """Forgets the tokens from `length` on and frees the pages wholly behind it."""
        assert self.can_rewind(length)
        end = pages_for(length)
        for group in range(len(self._groups)):
            self._free(group, end, self._end)
        self._end = min(self._end, end)
        self.length = length

    def release(self) -> None:
        """Frees everything; the sequence starts again at 0."""
        for group, first in enumerate(self._first):
            self._free(group, first, self._end)
            self._first[group] = 0
        self._end = 0
        self.length = 0

    def extents(self) -> Counter[int]:
        """Offsets held, each with the number of times."""
        return Counter(word_offset(int(word)) for word in self._words[self._words != EMPTY])

    def _free(self, group: int, begin: int, end: int) -> None:
        for index in range(begin, end):
            for word in self._words[group, index]:
                self._pool.release(word_offset(int(word)))
        self._words[group, begin:end] = EMPTY
