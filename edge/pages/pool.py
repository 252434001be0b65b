"""KV extents, free and in use. Owns: slabs, offsets, reference counts. Needs: geometry. Never: tensors, sequences.

Sequences hold extents, and cuts of the prefix cache do. What only cuts hold is cached: it is in use, and goes when somebody
needs the room.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from edge.contract import OFFSET_UNIT
from edge.errors import BudgetError
from edge.pages.fit import LARGEST_POOL, PoolSize
from edge.pages.geometry import ExtentKind, GroupPages
from edge.pages.lease import Lease
from edge.pages.room import Room, slabs_missing

NO_CUTS: Counter[int] = Counter()


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """Bytes of the pool: used + free + slack is the whole."""

    pool_bytes: int
    used_bytes: int  # in extents that somebody holds
    free_bytes: int  # free slabs, and free extents in slabs in use
    slack_bytes: int  # ends of slabs that nothing has been put into
    cached_bytes: int  # of the used bytes, what only the prefix cache holds
    high_water_bytes: int  # the most that `held_bytes` has been
    bytes_by_format: dict[str, int]  # of the used bytes
    high_water_by_format: dict[str, int]  # of those when they were the most

    @property
    def held_bytes(self) -> int:
        """Of the used bytes, what sequences hold."""
        return self.used_bytes - self.cached_bytes


@dataclass(frozen=True, slots=True)
class Slab:
    """A slab that is in use. With its last extent freed it belongs to every size again."""

    start: int  # offset
    end: int
    in_use: int  # extents

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset < self.end


@dataclass(slots=True)
class _Piece:
    """A run of extents of one size in a slab."""

    start: int  # offset of its first extent
    extent_bytes: int
    count: int
    free: list[int]  # a heap of offsets


@dataclass(slots=True)
class _Extent:
    kind: ExtentKind
    piece: _Piece
    references: int = 1
    cuts: int = 0  # of these, cuts of the prefix cache


class Pool:
    """A fixed number of slabs. A slab takes the size of the first extent that is taken from it; the end that no extent of that
    size fits goes to a smaller size, and so on. Equal calls give equal offsets, low ones first, so that used memory stays
    together."""

    def __init__(self, size: PoolSize) -> None:
        assert size.slab_bytes % OFFSET_UNIT == 0 and size.pool_bytes % size.slab_bytes == 0, size
        assert 0 < size.pool_bytes <= LARGEST_POOL, size
        self.size = size
        self._free_slabs = list(range(size.pool_bytes // size.slab_bytes))  # a heap of slab numbers
        self._slabs: dict[int, list[_Piece]] = {}  # by slab number, those in use: one piece behind the other
        self._ends: list[tuple[int, int]] = []  # (bytes, slab number) of what no piece has, ascending
        self._open: dict[int, list[int]] = {}  # extent bytes: starts of pieces with a free extent, ascending
        self._pieces: dict[int, _Piece] = {}  # by start
        self._free_extents: Counter[int] = Counter()  # extent bytes: free extents in pieces of that size
        self._extents: dict[int, _Extent] = {}  # by offset, those in use
        self._bytes_by_format: Counter[str] = Counter()
        self._cached_by_format: Counter[str] = Counter()  # of these, what only cuts hold
        self._high_water = 0
        self._high_water_by_format: dict[str, int] = {}

    def reserve(self, extents: Counter[ExtentKind], beside: Slab | None = None) -> Lease:
        """A lease of all of these extents, none of them in the slab `beside`: others must have place for them. BudgetError,
        and nothing changed, where they do not fit."""
        if not extents:
            return Lease(self, {})
        missing = slabs_missing(extents, self._free_extents, self._end_bytes(), self.size.slab_bytes)
        if missing > len(self._free_slabs):
            raise BudgetError(
                f"pool: {missing} more slabs of {self.size.slab_bytes} bytes are needed and {len(self._free_slabs)} are free. "
                "Use a larger pool, less context or fewer sequences"
            )
        # The largest first, as `slabs_missing` counts: smaller ones find room in the ends.
        kinds = sorted((kind for kind, count in extents.items() if count), key=lambda kind: -kind.bytes)
        waiting = {kind: [self._take(kind, beside) for _ in range(extents[kind])][::-1] for kind in kinds}
        self._note_high_water()
        return Lease(self, waiting)

    def share(self, offsets: Iterable[int]) -> None:
        """One more sequence that holds the extents at `offsets`."""
        for offset in offsets:
            extent = self._extents[offset]
            if extent.references == extent.cuts:
                self._cached_by_format[extent.kind.page_format] -= extent.kind.bytes
            extent.references += 1
        self._note_high_water()

    def release(self, offset: int) -> None:
        """One sequence fewer; the last holder frees the extent, and the slab too when it was its last extent."""
        extent = self._extents[offset]
        extent.references -= 1
        if extent.references > extent.cuts:
            return
        if extent.references:
            self._cached_by_format[extent.kind.page_format] += extent.kind.bytes
            return
        self._free(offset, extent)

    def keep(self, offsets: Iterable[int]) -> None:
        """One more cut that holds the extents at `offsets`; a sequence or another cut holds each of them."""
        for offset in offsets:
            extent = self._extents[offset]
            extent.references += 1
            extent.cuts += 1

    def let_go(self, offsets: Iterable[int]) -> None:
        """One cut fewer, which called `keep`."""
        for offset in offsets:
            extent = self._extents[offset]
            assert extent.cuts, "no cut holds this extent"
            extent.references -= 1
            extent.cuts -= 1
            if not extent.references:
                self._cached_by_format[extent.kind.page_format] -= extent.kind.bytes
                self._free(offset, extent)

    def is_cached(self, offset: int) -> bool:
        """Whether cuts hold the extent and nobody else."""
        extent = self._extents[offset]
        return extent.references == extent.cuts

    def _free(self, offset: int, extent: _Extent) -> None:
        del self._extents[offset]
        piece = extent.piece
        self._bytes_by_format[extent.kind.page_format] -= piece.extent_bytes
        if not piece.free:
            insort(self._open.setdefault(piece.extent_bytes, []), piece.start)
        heapq.heappush(piece.free, offset)
        self._free_extents[piece.extent_bytes] += 1
        if len(piece.free) == piece.count:
            self._drop_empty(offset // self.size.slab_bytes)

    def references(self, offset: int) -> int:
        """Holders of the extent at `offset`; 0 where none is."""
        extent = self._extents.get(offset)
        return extent.references if extent else 0

    def slab_of(self, offset: int) -> Slab:
        """The slab in which the extent at `offset` lies."""
        return self._slab(offset // self.size.slab_bytes)

    def scattered(self) -> list[Slab]:
        """Slabs whose extents would all find place in others that already have their sizes, those with the fewest first."""
        found = []
        for number, pieces in self._slabs.items():
            used, free = Counter[int](), Counter[int]()
            for piece in pieces:
                used[piece.extent_bytes] += piece.count - len(piece.free)
                free[piece.extent_bytes] += len(piece.free)
            if all(count <= self._free_extents[size] - free[size] for size, count in used.items()):
                found.append(self._slab(number))
        return sorted(found, key=lambda slab: (slab.in_use, -slab.start))

    def _slab(self, number: int) -> Slab:
        start, pieces = number * self.size.slab_bytes, self._slabs[number]
        return Slab(start, start + self.size.slab_bytes, sum(piece.count - len(piece.free) for piece in pieces))

    def room(self, groups: tuple[GroupPages, ...]) -> Room:
        """A picture of what can be reserved now, for pages of these layer groups."""
        return Room(self.size.slab_bytes, len(self._free_slabs), dict(self._free_extents), self._end_bytes(), groups)

    @property
    def used_bytes(self) -> int:
        """Bytes of extents that somebody holds, leases included."""
        return self._bytes_by_format.total()

    @property
    def cached_bytes(self) -> int:
        """Of these, bytes of extents that only cuts hold."""
        return self._cached_by_format.total()

    @property
    def held_bytes(self) -> int:
        """Of these, bytes of the other extents."""
        return self.used_bytes - self.cached_bytes

    def counts(self) -> PoolCounts:
        used = self.used_bytes
        free = len(self._free_slabs) * self.size.slab_bytes + sum(size * count for size, count in self._free_extents.items())
        return PoolCounts(
            pool_bytes=self.size.pool_bytes,
            used_bytes=used,
            free_bytes=free,
            slack_bytes=sum(self._end_bytes()),
            cached_bytes=self.cached_bytes,
            high_water_bytes=self._high_water,
            bytes_by_format=dict(+self._bytes_by_format),
            high_water_by_format=dict(self._high_water_by_format),
        )

    def check(self, held: Counter[int], cuts: Counter[int] = NO_CUTS) -> None:
        """Asserts that slabs, extents, lists and counts tell the same story, and that the extents in use are those that their
        holders know of: `held` is offset -> sequences, `cuts` offset -> cuts."""
        assert {offset: extent.references for offset, extent in self._extents.items()} == held + cuts, (
            "an extent nobody knows, or lost"
        )
        assert {offset: extent.cuts for offset, extent in self._extents.items() if extent.cuts} == cuts, "cuts are off"
        count = self.size.pool_bytes // self.size.slab_bytes
        assert sorted([*self._free_slabs, *self._slabs]) == list(range(count)), "a slab is lost or double"
        free_extents: Counter[int] = Counter()
        open_pieces: dict[int, list[int]] = {}
        ends: list[tuple[int, int]] = []
        for number, pieces in sorted(self._slabs.items()):
            place = number * self.size.slab_bytes
            for piece in pieces:
                assert piece.start == place and self._pieces[place] is piece, "a hole between two pieces"
                used = [offset for offset, extent in self._extents.items() if extent.piece is piece]
                assert sorted(used + piece.free) == [place + i * piece.extent_bytes for i in range(piece.count)], (
                    "an extent is lost"
                )
                place += piece.count * piece.extent_bytes
                free_extents[piece.extent_bytes] += len(piece.free)
                if piece.free:
                    open_pieces.setdefault(piece.extent_bytes, []).append(piece.start)
            assert pieces and len(pieces[-1].free) < pieces[-1].count, "an empty piece keeps its size"
            ends.append(((number + 1) * self.size.slab_bytes - place, number))
        assert self._ends == sorted(ends), "the ends of slabs are off"
        assert sum(map(len, self._slabs.values())) == len(self._pieces), "a piece without a slab"
        assert {size: starts for size, starts in self._open.items() if starts} == open_pieces, "open pieces have room"
        assert +self._free_extents == +free_extents, "the count of free extents is off"
        assert all(extent.kind.bytes == extent.piece.extent_bytes for extent in self._extents.values()), "two sizes in a piece"
        assert all(extent.references > 0 for extent in self._extents.values()), "an extent in use that nobody holds"
        counts = self.counts()
        assert counts.used_bytes == sum(extent.kind.bytes for extent in self._extents.values()), "used bytes are off"
        assert counts.used_bytes + counts.free_bytes + counts.slack_bytes == counts.pool_bytes, "bytes are lost"
        by_format: Counter[str] = Counter()
        for extent in self._extents.values():
            by_format[extent.kind.page_format] += extent.kind.bytes
        assert counts.bytes_by_format == by_format, "bytes of a format are off"
        cached: Counter[str] = Counter()
        for extent in self._extents.values():
            if extent.references == extent.cuts:
                cached[extent.kind.page_format] += extent.kind.bytes
        assert +self._cached_by_format == cached, "cached bytes are off"
        assert counts.held_bytes <= counts.high_water_bytes == sum(counts.high_water_by_format.values())

    def _note_high_water(self) -> None:
        if (held := self.held_bytes) > self._high_water:
            self._high_water = held
            self._high_water_by_format = dict(self._bytes_by_format - self._cached_by_format)

    def _take(self, kind: ExtentKind, beside: Slab | None) -> int:
        size = kind.bytes
        open_pieces = self._open.setdefault(size, [])
        if not open_pieces:
            self._add_piece(size)
        place = 0 if beside is None else next(i for i, start in enumerate(open_pieces) if start not in beside)
        piece = self._pieces[open_pieces[place]]
        offset = heapq.heappop(piece.free)
        if not piece.free:
            del open_pieces[place]
        self._free_extents[size] -= 1
        self._extents[offset] = _Extent(kind, piece)
        self._bytes_by_format[kind.page_format] += size
        return offset

    def _add_piece(self, size: int) -> None:
        """In the smallest end that holds an extent of this size, else in a free slab."""
        index = bisect_left(self._ends, (size, 0))
        if index < len(self._ends):
            room, number = self._ends.pop(index)
        else:
            room, number = self.size.slab_bytes, heapq.heappop(self._free_slabs)
            self._slabs[number] = []
        start = (number + 1) * self.size.slab_bytes - room
        count = room // size
        # Ascending offsets are a heap already.
        piece = _Piece(start, size, count, [start + i * size for i in range(count)])
        self._slabs[number].append(piece)
        self._pieces[start] = piece
        self._free_extents[size] += count
        insort(self._open[size], start)
        insort(self._ends, (room - count * size, number))

    def _drop_empty(self, number: int) -> None:
        """Takes the empty pieces at the end of a slab away; with the last one the slab is free."""
        pieces = self._slabs[number]
        room = (number + 1) * self.size.slab_bytes - (pieces[-1].start + pieces[-1].count * pieces[-1].extent_bytes)
        self._ends.remove((room, number))
        while pieces and len(pieces[-1].free) == pieces[-1].count:
            piece = pieces.pop()
            self._open[piece.extent_bytes].remove(piece.start)
            self._free_extents[piece.extent_bytes] -= piece.count
            del self._pieces[piece.start]
            room += piece.count * piece.extent_bytes
        if pieces:  # a piece in front of a used one stays, empty or not
            insort(self._ends, (room, number))
        else:
            del self._slabs[number]
            heapq.heappush(self._free_slabs, number)

    def _end_bytes(self) -> tuple[int, ...]:
        """Bytes at the ends of slabs that nothing has been put into, ascending."""
        return tuple(room for room, _ in self._ends)
