"""The pages of one sequence. Owns: its page-table words, its length, which pages are sealed and at which level. Needs: pool.
Never: token ids, order, which level is right (policy)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from edge.anchors.zones import BACKGROUND, RECENT, SINK
from edge.contract import EMPTY, FORMAT_SHIFT, OFFSET_MASK, OFFSET_UNIT, PAGE_FORMATS, PAGE_TOKENS, word_offset
from edge.pages.account import zone_bytes
from edge.pages.geometry import (
    ExtentKind,
    GroupPages,
    PageCount,
    PageKind,
    extents_between,
    extents_of,
    first_page,
    opened_extents,
    pages_for,
    peak_count,
    sealed_end,
    span_count,
)
from edge.pages.lease import Lease
from edge.pages.moves import Copy, Demotion, PageMove, Sealing, kind_formats, new_word, word_formats
from edge.pages.pool import Pool
from edge.pages.prefix_cache import Cut, cut_border, cut_of
from edge.pages.slabs import Slab

_NO_EXTENTS: Counter[ExtentKind] = Counter()  # never changed


class SequencePages:
    """Pages that hold K and V of positions 0 .. length - 1, less those behind a group's window.

    Growing takes two calls, so that a step that is not run changes nothing: `place` gives the words of the state after the
    step, `commit` adopts them and frees what they replace. A step that the engine began and did not end may have written into
    pages that it was to seal: the sequence is to be released then.

    Pages are sealed at the preset's level unless `assign` says otherwise. A step may demote pages besides.
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
        self._zones = np.full(max_pages, BACKGROUND, np.uint8)
        self._levels = np.full(max_pages, groups[0].base, np.uint8)  # at which pages are sealed
        self._level_of = {kind_formats(kind): level for level, kind in enumerate(groups[0].levels)}  # by formats of K and V
        self._nothing = Sealing(_NO_EXTENTS, (0,) * len(groups))
        self.was_demoted = False  # so that what it reads is not what a sequence of the same tokens reads elsewhere

    def assign(self, zones: np.ndarray, levels: np.ndarray) -> None:
        """Zones, and levels for the pages that are sealed from now on: uint8 [pages] each, from page 0. Pages beyond are
        background, at the preset's level."""
        for row, values, rest in ((self._zones, zones, BACKGROUND), (self._levels, levels, self._groups[0].base)):
            count = min(len(row), len(values))
            row[:count], row[count:] = values[:count], rest

    def missing(self, length: int) -> int:
        """Pages, in each layer group, that must be reserved before the sequence can have `length` tokens."""
        return max(0, pages_for(length) - self._end)

    def to_seal(self) -> tuple[int, ...]:
        """Pages of each layer group that the next step seals, whatever its length and their level."""
        return tuple(len(pages) for pages in self._next_sealed())

    def sealing(self) -> Sealing:
        """What the next step seals."""
        if not self._seals or sealed_end(self.length) <= self._sealed:  # as in most steps
            return self._nothing
        extents: Counter[ExtentKind] = Counter()
        places = []
        for group, pages in enumerate(self._next_sealed()):
            kinds = [self._seal_kind(group, index) for index in pages]
            moved = [index for index, kind in zip(pages, kinds, strict=True) if kind != self._groups[group].open]
            places.append(sum(self._is_ours(group, index) for index in moved))
            for kind in kinds:
                extents += extents_between(self._groups[group].open, kind)
        return Sealing(extents, tuple(places))

    def shared_to_seal(self) -> set[int]:
        """Offsets of the extents which the next step seals that others hold as well, so that it cannot use their places."""
        moved = [
            self._words[group, page]
            for group, pages in enumerate(self._next_sealed())
            for page in pages
            if self._seal_kind(group, page) != self._groups[group].open
        ]
        offsets = [word_offset(word) for words in moved for word in words.tolist()]
        return {offset for offset in offsets if self._pool.references(offset) > 1}

    def step_extents(self, length: int, demotions: Sequence[Demotion] = ()) -> Counter[ExtentKind]:
        """Extents that must be reserved for the step to `length` tokens; with the length that there is, for demotions alone."""
        sealing = self.sealing() if length > self.length else self._nothing
        return sealing.extents + opened_extents(self._groups, self.missing(length), sealing.places) + self.demoted(demotions)

    def demoted(self, demotions: Sequence[Demotion]) -> Counter[ExtentKind]:
        """Extents that these demotions take."""
        extents: Counter[ExtentKind] = Counter()
        for each in demotions:
            levels = self._groups[each.group].levels
            extents += extents_between(levels[self.level(each.group, each.page)], levels[each.level])
        return extents

    def extents_until(self, length: int, chunk_tokens: int) -> Counter[ExtentKind]:
        """Extents beyond those held that the way to `length` tokens takes at most, chunk by chunk."""
        new = self.missing(length)
        if not new:  # no border without a new page
            return _NO_EXTENTS
        missing, raised = [], Counter[ExtentKind]()
        for index, (group, first) in enumerate(zip(self._groups, self._first, strict=True)):
            peak, held = peak_count(group, length, chunk_tokens), span_count(first, self._end, self._sealed)
            begin, end = max(first, self._sealed, 1), sealed_end(length - 1)
            sealed = max(0, min(peak.sealed - held.sealed, end - begin))
            # A page that somebody else holds is sealed all the same, and no new one may stand where it stood.
            shared = sum(not self._is_ours(index, page) for page in range(begin, min(end, self._end))) if group.seals else 0
            missing.append(PageCount(max(0, min(peak.open - held.open + shared, new)), sealed))
            if sealed:
                for level in np.flatnonzero(np.bincount(self._levels[begin:end], minlength=group.base)[: group.base]).tolist():
                    count = min(sealed, int((self._levels[begin:end] == level).sum()))
                    for kind, number in extents_between(group.sealed, group.levels[level]).items():
                        raised[kind] += number * count
        return extents_of(self._groups, tuple(missing)) + raised

    def held(self) -> int:
        """Pages held, all layer groups together."""
        return sum(self._end - first for first in self._first)

    def takes_room(self) -> bool:
        """Whether it holds anything in the pool: what lies in a file takes none."""
        held = self._words[self._words != EMPTY]
        return bool(held.size) and word_offset(int((held & OFFSET_MASK).min())) < self._pool.size.pool_bytes

    def place(
        self, length: int, lease: Lease, demotions: Sequence[Demotion] = (), copies: Sequence[Copy] = ()
    ) -> tuple[np.ndarray, tuple[PageMove, ...]]:
        """Words int32 [groups, max_pages, 2] of the state with `length` tokens, and the moves that lead to it; new extents are
        taken from `lease`. With the length that there is, `demotions` and `copies` (of other pages) are all that happens. The
        words are not to be written to: without new pages, as in most steps, they are the sequence's own."""
        sealing = self._next_sealed() if length > self.length else ()
        if not self.missing(length) and not any(sealing) and not demotions and not copies:
            return self._words, ()
        words = self._words.copy()
        moves: list[PageMove] = []
        for each in demotions:
            assert self._is_ours(each.group, each.page) and self.level(each.group, each.page) < each.level, each
            moves += self._moves(words, each.group, each.page, self._groups[each.group].levels[each.level], lease)
        for copy in copies:
            at, extent = (copy.group, copy.page, int(copy.is_value)), self.extent_kind(copy)
            target = new_word(extent, lease)
            moves.append(PageMove(copy.group, copy.is_value, int(words[at]), target, extent.bytes))
            words[at] = target
        for group, pages in enumerate(self._groups):
            added = iter(range(self._end, pages_for(length)))
            for index in sealing[group] if sealing else ():
                kind = self._seal_kind(group, index)
                # Every layer moves before it appends, so a page that is added may stand where one was sealed.
                if kind != pages.open and self._is_ours(group, index) and (new := next(added, None)) is not None:
                    words[group, new] = words[group, index]
                moves += self._moves(words, group, index, kind, lease)
            for index in added:
                words[group, index] = new_word(pages.open.key, lease), new_word(pages.open.value, lease)
        return words, tuple(moves)

    def commit(self, words: np.ndarray, length: int, demotions: Sequence[Demotion] = (), copies: Sequence[Copy] = ()) -> None:
        """Adopts what `place` gave for the same, then frees what was moved and the pages that no later query sees."""
        if self.missing(length) or demotions or copies or (length > self.length and any(self._next_sealed())):
            replaced = self._words[(self._words != words) & (self._words != EMPTY)].tolist()
            reused = set(words[:, self._end : pages_for(length)].ravel().tolist()) if replaced else set()
            self._words[:] = words
            for word in replaced:
                if word not in reused:
                    self._pool.release(word_offset(word))
            self._end = max(self._end, pages_for(length))
            self.was_demoted |= bool(demotions)
        if self._seals and length > self.length:
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
        another form, and of a sequence whose pages were demoted."""
        if self.was_demoted:
            return None
        sealed = max(self._sealed, sealed_end(self.length)) if length > self.length else self._sealed
        return cut_of(self._groups, words, length, sealed if self._seals else 0)

    def adopt(self, cut: Cut) -> None:
        """Begins with a cut, whose extents it shares; it must hold nothing."""
        assert self.length == 0 and not self.held()
        self._pool.share(cut.offsets())
        self.length, self._end, self._sealed = cut.length, cut.length // PAGE_TOKENS, cut.sealed
        self._words[:, : self._end] = cut.words
        self._first = [first_page(group.window, cut.length) for group in self._groups]

    def extents_between(self, begin: int, end: int) -> list[Copy]:
        """The extents that lie in the pool from offset `begin` up to `end`, each as if it were to be copied."""
        places = (self._words & OFFSET_MASK).astype(np.int64) * OFFSET_UNIT
        inside = (self._words != EMPTY) & (places >= begin) & (places < end)
        return [Copy(group, page, side == 1) for group, page, side in np.argwhere(inside).tolist()]

    def are_ours(self, copies: Sequence[Copy]) -> bool:
        """Whether nobody else holds these extents."""
        words = (int(self._words[copy.group, copy.page, int(copy.is_value)]) for copy in copies)
        return all(self._pool.references(word_offset(word)) == 1 for word in words)

    def extent_kind(self, copy: Copy) -> ExtentKind:
        """Of the extent that stands there."""
        level = self._groups[copy.group].levels[self.level(copy.group, copy.page)]
        return level.value if copy.is_value else level.key

    def level(self, group: int, page: int) -> int:
        """The level of a page that is held; 0 where it is not sealed."""
        return self._level_of[word_formats(self._words[group, page])]

    def demotable(self, zone: int) -> list[Demotion]:
        """Sealed pages of this zone that nobody else holds, one level down where one is left: the most exact ones first, of
        these slab by slab, slabs that become empty in front, and the oldest first."""
        slabs: dict[tuple[int, Slab], list[Demotion]] = {}  # by level
        for group, first in enumerate(self._first):
            levels = self._groups[group].levels
            for page in (max(first, 1) + np.flatnonzero(self._zones[max(first, 1) : self._sealed] == zone)).tolist():
                level = self.level(group, page) + 1
                if level < len(levels) and self._is_ours(group, page):
                    side = int(levels[level - 1].key == levels[level].key)  # V, where K stays
                    slab = self._pool.slab_of(word_offset(int(self._words[group, page, side])))
                    slabs.setdefault((level, slab), []).append(Demotion(group, page, level))
        order = sorted(slabs, key=lambda key: (key[0], len(slabs[key]) < key[1].in_use, slabs[key][0].page, key[1].start))
        return [demotion for key in order for demotion in slabs[key]]

    def zones(self) -> np.ndarray:
        """uint8 [max_pages], as they were assigned; not to be written to."""
        return self._zones

    def held_by_group(self) -> list[int]:
        """Pages held, by layer group."""
        return [self._end - first for first in self._first]

    def raised(self) -> list[np.ndarray]:
        """By layer group the sealed pages, ascending, that stand one level above the preset's and that nobody else holds."""
        found = [[page for page in self._above(group) if self._is_ours(group, page)] for group in range(len(self._groups))]
        return [np.array(pages, np.int64) for pages in found]

    def raised_counts(self) -> list[int]:
        """By layer group the number of `raised`, or more: those that somebody else holds are not left out."""
        return [len(self._above(group)) for group in range(len(self._groups))]

    def _above(self, group: int) -> list[int]:
        """Sealed pages one level above the preset's."""
        pages, first = self._groups[group], max(self._first[group], 1)
        formats = self._words[group, first : self._sealed if pages.seals else 0] >> FORMAT_SHIFT
        is_above = (formats == kind_formats(pages.levels[pages.base - 1])).all(axis=1)
        above: list[int] = (first + np.flatnonzero(is_above)).tolist()
        return above

    def is_sealed_as_assigned(self, words: np.ndarray, sealed: int) -> bool:
        """Whether of pages at these words, int32 [groups, pages, 2], the ones before `sealed` have the level at which this
        sequence would seal them."""
        for row in words:
            for page in range(1, min(sealed, len(row))):
                if row[page, 0] != EMPTY and self._level_of[word_formats(row[page])] != self._levels[page]:
                    return False
        return True

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
        self.was_demoted = False

    def extents(self) -> Counter[int]:
        """Offsets held, each with the number of times."""
        return Counter(word_offset(int(word)) for word in self._words[self._words != EMPTY])

    def words(self) -> np.ndarray:
        """Page-table words int32 [groups, max_pages, 2] of now; a view, not to be written to."""
        return self._words

    def bytes_by_format(self) -> dict[str, int]:
        """Bytes of the extents held, by page format."""
        return dict(sum(map(Counter, self.bytes_by_zone().values()), Counter[str]()))

    def bytes_by_zone(self) -> dict[str, dict[str, int]]:
        """Bytes of the extents that it holds in the pool, not those of a file, by zone and page format. Page 0 is the sink,
        pages that are not sealed yet are recent."""
        zones = self._zones.copy()
        zones[sealed_end(max(0, self.length - 1)) :] = RECENT
        zones[:1] = SINK
        mapped = self._words & OFFSET_MASK >= self._pool.size.pool_bytes // OFFSET_UNIT  # of EMPTY too
        return zone_bytes(self._groups, np.where(mapped, EMPTY, self._words), zones)

    def _next_sealed(self) -> tuple[range, ...]:
        """Pages of each layer group that the next step seals."""
        end = sealed_end(self.length) if self._seals else 0
        return tuple(range(max(first, self._sealed, 1), end) for first in self._first)

    def _seal_kind(self, group: int, page: int) -> PageKind:
        return self._groups[group].levels[self._levels[page]]

    def _moves(self, words: np.ndarray, group: int, page: int, kind: PageKind, lease: Lease) -> list[PageMove]:
        """Moves of one page to `kind`, and its new words: of K, of V or of both."""
        moves = []
        for side, extent in enumerate((kind.key, kind.value)):
            source = int(words[group, page, side])
            if source >> FORMAT_SHIFT != PAGE_FORMATS[extent.page_format]:
                target = new_word(extent, lease)
                moves.append(PageMove(group, side == 1, source, target, extent.bytes))
                words[group, page, side] = target
        return moves

    def _is_ours(self, group: int, index: int) -> bool:
        """Whether nobody else holds this page."""
        return all(self._pool.references(word_offset(int(word))) == 1 for word in self._words[group, index])

    def _free(self, group: int, begin: int, end: int) -> None:
        for index in range(begin, end):
            for word in self._words[group, index]:
                self._pool.release(word_offset(int(word)))
        self._words[group, begin:end] = EMPTY
