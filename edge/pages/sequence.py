"""The pages of one sequence. Owns: its page-table words, its length, which pages are sealed. Needs: pool. Never: token ids,
order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from edge.contract import EMPTY, FORMAT_SHIFT, OFFSET_MASK, PAGE_FORMATS, PAGE_TOKENS, page_word, word_offset
from edge.pages.geometry import (
    ExtentKind,
    GroupPages,
    PageCount,
    first_page,
    pages_for,
    peak_count,
    reserved_pages,
    sealed_end,
    span_count,
)
from edge.pages.lease import Lease
from edge.pages.pool import Pool
from edge.pages.prefix_cache import Cut, cut_border, cut_of


@dataclass(frozen=True, slots=True)
class PageMove:
    """Seal, demote or compact one extent, out of place."""

    group: int
    is_value: bool  # False: K
    source: int  # page-table word
    target: int  # page-table word
    bytes: int  # of the target

    @property
    def is_copy(self) -> bool:
        """Whether the extent keeps its format."""
        return self.source >> FORMAT_SHIFT == self.target >> FORMAT_SHIFT

    @property
    def seals(self) -> bool:
        """Whether an open extent gets its sealed form; the rest is demoted or copied."""
        return not self.is_copy and self.source >> FORMAT_SHIFT == PAGE_FORMATS["fp16"]


_NO_MOVES = np.empty((0, 4), np.int32)


class SequencePages:
    """Pages that hold K and V of positions 0 .. length - 1, less those behind a group's window.

    Growing takes two calls, so that a step that is not run changes nothing: `place` gives the words of the state after the
    step, `commit` adopts them and frees what they replace. A step that the engine began and did not end may have written into
    pages that it was to seal: the sequence is to be released then.
    """

    def __init__(self, pool: Pool, groups: tuple[GroupPages, ...], max_pages: int) -> None:
        self.length = 0  # tokens whose K and V are in the pages
        self._pool = pool
        self._groups = groups
        self._seals = any(group.seals for group in groups)
        self._words = np.full((len(groups), max_pages, 2), EMPTY, np.int32)
        self._first = [0] * len(groups)  # first page held, per group
        self._end = 0  # pages held end here, in every group
        self._sealed = 0  # of the pages held those before this one are sealed, but for page 0

    def missing(self, length: int) -> int:
        """Pages, in each layer group, that must be reserved before the sequence can have `length` tokens."""
        return max(0, pages_for(length) - self._end)

    def to_seal(self) -> tuple[int, ...]:
        """Pages of each layer group that the next step seals, whatever its length."""
        if not self._seals:
            return (0,) * len(self._groups)
        end = sealed_end(self.length)
        return tuple(max(0, end - max(first, self._sealed, 1)) for first in self._first)

    def reusable(self) -> tuple[int, ...]:
        """Of the pages of each layer group that the next step seals, those into whose place it may put the pages that it adds:
        all that nobody else holds."""
        if not any(sealing := self.to_seal()):  # as in most steps
            return sealing
        sealed = sealed_end(self.length)
        return tuple(
            sum(self._is_ours(group, index) for index in range(sealed - count, sealed)) for group, count in enumerate(sealing)
        )

    def shared_to_seal(self) -> set[int]:
        """Offsets of the extents which the next step seals that others hold as well, so that it cannot use their places."""
        sealed = sealed_end(self.length)
        words = [self._words[group, sealed - count : sealed].ravel() for group, count in enumerate(self.to_seal())]
        offsets = [word_offset(word) for part in words for word in part.tolist()]
        return {offset for offset in offsets if self._pool.references(offset) > 1}

    def step_pages(self, length: int) -> tuple[PageCount, ...]:
        """Pages of each layer group that must be reserved for the step to `length` tokens."""
        return reserved_pages(self.missing(length), self.to_seal(), self.reusable())

    def missing_until(self, length: int, chunk_tokens: int) -> tuple[PageCount, ...]:
        """Pages of each layer group beyond those held that the way to `length` tokens takes at most, chunk by chunk."""
        new = self.missing(length)
        if not new:  # no border without a new page
            return (PageCount(0, 0),) * len(self._groups)
        missing = []
        for index, (group, first) in enumerate(zip(self._groups, self._first, strict=True)):
            peak, held = peak_count(group, length, chunk_tokens), span_count(first, self._end, self._sealed)
            begin, end = max(first, self._sealed, 1), sealed_end(length - 1)
            # A page that somebody else holds is sealed all the same, and no new one may stand where it stood.
            shared = sum(not self._is_ours(index, page) for page in range(begin, min(end, self._end))) if group.seals else 0
            missing.append(
                PageCount(max(0, min(peak.open - held.open + shared, new)), max(0, min(peak.sealed - held.sealed, end - begin)))
            )
        return tuple(missing)

    def held(self) -> int:
        """Pages held, all layer groups together."""
        return sum(self._end - first for first in self._first)

    def takes_room(self) -> bool:
        """Whether it holds anything in the pool: what lies in a file takes none."""
        held = self._words[self._words != EMPTY]
        return bool(held.size) and word_offset(int((held & OFFSET_MASK).min())) < self._pool.size.pool_bytes

    def place(self, length: int, lease: Lease) -> tuple[np.ndarray, tuple[PageMove, ...]]:
        """Words int32 [groups, max_pages, 2] of the state with `length` tokens, and the moves that lead to it; new extents are
        taken from `lease`. The words are not to be written to: without new pages, as in most steps, they are the sequence's
        own."""
        sealing = self.to_seal()
        if not self.missing(length) and not any(sealing):
            return self._words, ()
        words = self._words.copy()
        moves: list[PageMove] = []
        sealed = sealed_end(self.length)
        for group, (pages, count) in enumerate(zip(self._groups, sealing, strict=True)):
            added = iter(range(self._end, pages_for(length)))
            for index in range(sealed - count, sealed):
                # Every layer moves before it appends, so a page that is added may stand where one was sealed.
                if self._is_ours(group, index) and (new := next(added, None)) is not None:
                    words[group, new] = words[group, index]
                for side, kind in enumerate((pages.sealed.key, pages.sealed.value)):
                    target = _new_word(kind, lease)
                    moves.append(PageMove(group, side == 1, int(words[group, index, side]), target, kind.bytes))
                    words[group, index, side] = target
            for index in added:
                words[group, index] = _new_word(pages.open.key, lease), _new_word(pages.open.value, lease)
        return words, tuple(moves)

    def commit(self, words: np.ndarray, length: int) -> None:
        """Adopts what `place` gave for this length, then frees what was moved and the pages that no later query sees."""
        if self.missing(length) or any(self.to_seal()):
            replaced = self._words[(self._words != words) & (self._words != EMPTY)].tolist()
            reused = set(words[:, self._end : pages_for(length)].ravel().tolist()) if replaced else set()
            self._words[:] = words
            for word in replaced:
                if word not in reused:
                    self._pool.release(word_offset(word))
            self._end = max(self._end, pages_for(length))
        if self._seals:
            self._sealed = max(self._sealed, sealed_end(self.length))
        self.length = length
        for group, pages in enumerate(self._groups):
            first = first_page(pages.window, length)
            self._free(group, self._first[group], first)
            self._first[group] = max(self._first[group], first)

    def steps_inside(self) -> int:
        """Steps of one token that change no page-table word: none is added, sealed or freed."""
        ends = [self._end * PAGE_TOKENS]
        for group, first in zip(self._groups, self._first, strict=True):
            if group.window:
                ends.append((first + 1) * PAGE_TOKENS + group.window - 2)  # the last length at which `first` is seen
        return max(0, min(ends) - self.length)

    def grow(self) -> None:
        """Commits such a step."""
        self.length += 1

    def cut(self, length: int, words: np.ndarray) -> Cut | None:
        """The state at `length`, which is at a page border. `words` are those of now, or those that `place` gave and that are
        committed next, for a `length` that this step reaches. None where a page that a query there reads is gone or stands in
        another form."""
        sealed = max(self._sealed, sealed_end(self.length)) if length > self.length else self._sealed
        return cut_of(self._groups, words, length, sealed if self._seals else 0)

    def adopt(self, cut: Cut) -> None:
        """Begins with a cut, whose extents it shares; it must hold nothing."""
        assert self.length == 0 and not self.held()
        self._pool.share(cut.offsets())
        self.length, self._end, self._sealed = cut.length, cut.length // PAGE_TOKENS, cut.sealed
        self._words[:, : self._end] = cut.words
        self._first = [first_page(group.window, cut.length) for group in self._groups]

    def can_rewind(self, length: int) -> bool:
        """Whether every page that a query at `length` sees still stands, in the form in which it reads it, and the page that is
        then written to is nobody else's."""
        if length > self.length:
            return False
        begun = length // PAGE_TOKENS
        if length % PAGE_TOKENS and not all(self._is_ours(group, begun) for group in range(len(self._groups))):
            return False
        for group, first in zip(self._groups, self._first, strict=True):
            seen = first_page(group.window, length)
            # Sealed pages are never repaired: computing a page again from sealed ones does not give the same values.
            if first > seen or max(seen, sealed_end(length), 1) < min(self._sealed, pages_for(length)):
                return False
        return True

    def rewind_point(self, length: int) -> int:
        """The last length up to this one that `rewind` takes."""
        # Behind `length` the block in front of the last border is sealed, or pages behind a window are freed; the first page
        # is never sealed. A page that a cut holds is not written to.
        points = (length, cut_border(length), min(length, PAGE_TOKENS))
        return next((point for point in points if self.can_rewind(point)), 0)

    def rewind(self, length: int) -> None:
        """Forgets the tokens from `length` on and frees the pages wholly behind it."""
        if length == 0:
            self.release()
            return
        assert self.can_rewind(length)
        end = pages_for(length)
        for group in range(len(self._groups)):
            self._free(group, end, self._end)
        self._end = min(self._end, end)
        self._sealed = min(self._sealed, sealed_end(length))
        self.length = length

    def release(self) -> None:
        """Frees everything; the sequence starts again at 0."""
        for group, first in enumerate(self._first):
            self._free(group, first, self._end)
            self._first[group] = 0
        self._end = self._sealed = self.length = 0

    def extents(self) -> Counter[int]:
        """Offsets held, each with the number of times."""
        return Counter(word_offset(int(word)) for word in self._words[self._words != EMPTY])

    def words(self) -> np.ndarray:
        """Page-table words int32 [groups, max_pages, 2] of now; a view, not to be written to."""
        return self._words

    def bytes_by_format(self) -> dict[str, int]:
        """Bytes of the extents held, by page format."""
        found: Counter[str] = Counter()
        for group, pages in enumerate(self._groups):
            for side in range(2):
                kinds = (pages.open.key, pages.sealed.key) if side == 0 else (pages.open.value, pages.sealed.value)
                words = self._words[group, :, side]
                formats = words[words != EMPTY] >> FORMAT_SHIFT
                for kind in dict.fromkeys(kinds):
                    found[kind.page_format] += kind.bytes * int((formats == PAGE_FORMATS[kind.page_format]).sum())
        return dict(+found)

    def _is_ours(self, group: int, index: int) -> bool:
        """Whether nobody else holds this page."""
        return all(self._pool.references(word_offset(int(word))) == 1 for word in self._words[group, index])

    def _free(self, group: int, begin: int, end: int) -> None:
        for index in range(begin, end):
            for word in self._words[group, index]:
                self._pool.release(word_offset(int(word)))
        self._words[group, begin:end] = EMPTY


def pack_moves(moves: tuple[PageMove, ...]) -> np.ndarray:
    """int32 [M, 4], as executors read them."""
    if not moves:
        return _NO_MOVES
    return np.array([(move.group, int(move.is_value), move.source, move.target) for move in moves], np.int32)


def _new_word(kind: ExtentKind, lease: Lease) -> int:
    return page_word(PAGE_FORMATS[kind.page_format], lease.take(kind))
