"""Where in a pool extents lie. Owns: slabs, their sizes, free places. Needs: geometry. Never: who holds an extent, files behind
the pool."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass

from edge.contract import OFFSET_UNIT
from edge.pages.fit import LARGEST_POOL, PoolSize
from edge.pages.geometry import ExtentKind, GroupPages
from edge.pages.room import Room, slabs_missing
from edge.pages.scatter import SlabUse, scatter_limits


@dataclass(frozen=True, slots=True)
class Slab:
    """A slab that is in use. With its last extent freed it belongs to every size again."""

    start: int  # offset
    end: int
    in_use: int  # extents

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset < self.end


@dataclass(slots=True)
class Piece:
    """A run of extents of one size in a slab."""

    start: int  # offset of its first extent
    extent_bytes: int
    count: int
    free: list[int]  # a heap of offsets
    held: int = 0  # extents that sequences hold; cuts hold the rest


class Slabs:
    """A fixed number of slabs. A slab takes the size of the first extent that is taken from it; the end that no extent of that
    size fits goes to a smaller size, and so on. Equal calls give equal offsets: those in slabs of sequences first, then low
    ones, so that used memory stays together."""

    def __init__(self, size: PoolSize, fills_ends: bool) -> None:
        """Ends are best left alone beside a prefix cache: a small extent there, which stays, would keep the slab of large ones
        that cuts leave from taking another size."""
        assert size.slab_bytes % OFFSET_UNIT == 0 and size.pool_bytes % size.slab_bytes == 0, size
        assert 0 < size.pool_bytes <= LARGEST_POOL, size
        self.size = size
        self._fills_ends = fills_ends
        self._free_slabs = list(range(size.pool_bytes // size.slab_bytes))  # a heap of slab numbers
        self._slabs: dict[int, list[Piece]] = {}  # by slab number, those in use: one piece behind the other
        self._ends: list[tuple[int, int]] = []  # (bytes, slab number) of what no piece has, ascending
        self._open: dict[int, list[int]] = {}  # extent bytes: starts of pieces with a free extent, ascending
        self._pieces: dict[int, Piece] = {}  # by start
        self._free_extents: Counter[int] = Counter()  # extent bytes: free extents in pieces of that size

    def missing(self, extents: Counter[ExtentKind]) -> int:
        """Slabs that these extents need beyond those that are free; 0 or less where they fit."""
        return slabs_missing(extents, self._free_extents, self._end_bytes(), self.size.slab_bytes) - len(self._free_slabs)

    def take(self, size: int, beside: Slab | None) -> tuple[int, Piece]:
        """A place for an extent of so many bytes, not in the slab `beside`; there must be one."""
        open_pieces = self._open.setdefault(size, [])
        if not open_pieces:
            self._add_piece(size)
        # In slabs of sequences first: what only cuts hold goes one day, and leaves whole slabs free.
        index = max(
            (i for i, start in enumerate(open_pieces) if beside is None or start not in beside),
            key=lambda i: (self._is_busy(open_pieces[i] // self.size.slab_bytes), self._pieces[open_pieces[i]].held, -i),
        )
        piece = self._pieces[open_pieces[index]]
        offset = heapq.heappop(piece.free)
        if not piece.free:
            del open_pieces[index]
        self._free_extents[size] -= 1
        return offset, piece

    def give_back(self, offset: int, piece: Piece) -> None:
        """The place is free again, and with the last one of a slab the slab."""
        if not piece.free:
            insort(self._open.setdefault(piece.extent_bytes, []), piece.start)
        heapq.heappush(piece.free, offset)
        self._free_extents[piece.extent_bytes] += 1
        if len(piece.free) == piece.count:
            self._drop_empty(offset // self.size.slab_bytes)

    def slab_of(self, offset: int) -> Slab:
        """The slab in which the extent at `offset` lies, which is none of a file."""
        assert offset < self.size.pool_bytes, f"{offset} lies behind the pool"
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

    def room(self, groups: tuple[GroupPages, ...], promised: Mapping[int, int]) -> Room:
        """A picture of what can be taken now, for pages of these layer groups, with limits where `promised`, by extent bytes
        the most that sequences will hold, could need them (scatter.py)."""
        free, ends = dict(self._free_extents), self._end_bytes()
        # With free slabs for twice what is promised, those in use need not be looked at.
        is_tight = 2 * sum(size * count for size, count in promised.items()) > len(self._free_slabs) * self.size.slab_bytes
        limits = scatter_limits(self._uses(), promised, self.size) if is_tight else {}
        return Room(self.size.slab_bytes, len(self._free_slabs), free, ends, groups, limits)

    @property
    def free_count(self) -> int:
        """Slabs that nobody uses."""
        return len(self._free_slabs)

    @property
    def free_bytes(self) -> int:
        """Of free slabs, and of free extents in slabs in use."""
        in_use = sum(size * count for size, count in self._free_extents.items())
        return len(self._free_slabs) * self.size.slab_bytes + in_use

    @property
    def slack_bytes(self) -> int:
        """Of ends that nothing has been put into."""
        return sum(room for room, _ in self._ends)

    def check(self, used: Mapping[int, Piece], held: Set[int]) -> None:
        """Asserts that slabs, pieces, lists and counts tell the same story. `used`: the extents in use, by offset; `held`:
        offsets of those that sequences hold."""
        count = self.size.pool_bytes // self.size.slab_bytes
        assert sorted([*self._free_slabs, *self._slabs]) == list(range(count)), "a slab is lost or double"
        free_extents: Counter[int] = Counter()
        open_pieces: dict[int, list[int]] = {}
        ends: list[tuple[int, int]] = []
        for number, pieces in sorted(self._slabs.items()):
            place = number * self.size.slab_bytes
            for piece in pieces:
                assert piece.start == place and self._pieces[place] is piece, "a hole between two pieces"
                offsets = [offset for offset, its in used.items() if its is piece]
                assert sorted(offsets + piece.free) == [place + i * piece.extent_bytes for i in range(piece.count)], (
                    "an extent is lost"
                )
                place += piece.count * piece.extent_bytes
                assert piece.held == sum(offset in held for offset in offsets), "the count of held extents is off"
                free_extents[piece.extent_bytes] += len(piece.free)
                if piece.free:
                    open_pieces.setdefault(piece.extent_bytes, []).append(piece.start)
            assert pieces and len(pieces[-1].free) < pieces[-1].count, "an empty piece keeps its size"
            ends.append(((number + 1) * self.size.slab_bytes - place, number))
        assert self._ends == sorted(ends), "the ends of slabs are off"
        assert sum(map(len, self._slabs.values())) == len(self._pieces), "a piece without a slab"
        assert {size: starts for size, starts in self._open.items() if starts} == open_pieces, "open pieces have room"
        assert +self._free_extents == +free_extents, "the count of free extents is off"

    def _slab(self, number: int) -> Slab:
        start, pieces = number * self.size.slab_bytes, self._slabs[number]
        return Slab(start, start + self.size.slab_bytes, sum(piece.count - len(piece.free) for piece in pieces))

    def _uses(self) -> list[SlabUse]:
        return [
            SlabUse(self._is_busy(number), tuple((piece.extent_bytes, len(piece.free)) for piece in pieces))
            for number, pieces in sorted(self._slabs.items())
        ]

    def _is_busy(self, number: int) -> bool:
        """Whether sequences hold extents in this slab."""
        return any(piece.held for piece in self._slabs[number])

    def _add_piece(self, size: int) -> None:
        """In the smallest end that holds an extent of this size, else in a free slab."""
        index = bisect_left(self._ends, (size, 0))
        if self._fills_ends and index < len(self._ends):
            room, number = self._ends.pop(index)
        else:
            room, number = self.size.slab_bytes, heapq.heappop(self._free_slabs)
            self._slabs[number] = []
        start = (number + 1) * self.size.slab_bytes - room
        count = room // size
        # Ascending offsets are a heap already.
        piece = Piece(start, size, count, [start + i * size for i in range(count)])
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

    def _end_bytes(self) -> tuple[int, ...] | None:
        """Bytes at the ends of slabs, ascending; None where nothing is put there."""
        return tuple(room for room, _ in self._ends) if self._fills_ends else None
