"""KV extents, free and in use. Owns: offsets in use, reference counts. Needs: slabs. Never: tensors, sequences.

Sequences hold extents, and cuts of the prefix cache do. What only cuts hold is cached: it is in use, and goes when somebody
needs the room. Behind the pool lie the extents of files, where some are mapped: anybody's, and never free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edge.contract import OFFSET_UNIT
from edge.errors import BudgetError
from edge.pages.fit import LARGEST_POOL, PoolSize
from edge.pages.geometry import ExtentKind, GroupPages
from edge.pages.lease import Lease
from edge.pages.pool_counts import PoolCounts
from edge.pages.room import Room
from edge.pages.slabs import Piece, Slab, Slabs

NOTHING: Counter[int] = Counter()


@dataclass(slots=True)
class _Extent:
    kind: ExtentKind
    piece: Piece
    references: int = 1
    cuts: int = 0  # of these, cuts of the prefix cache


_OUTSIDE = Piece(0, 0, 0, [])  # of the extents of files
_PINNED = 1 << 40  # their references: that of the file, which never goes


class Pool:
    """Extents in slabs (slabs.py), and behind them those of files."""

    def __init__(self, size: PoolSize, fills_ends: bool = True) -> None:
        """`fills_ends`: small extents may lie in the ends of slabs of large ones."""
        self.size = size
        self._slabs = Slabs(size, fills_ends)
        self._extents: dict[int, _Extent] = {}  # by offset, those in use
        self._bytes_by_format: Counter[str] = Counter()
        self._cached_by_format: Counter[str] = Counter()  # of these, what only cuts hold
        self._baked_bytes = 0
        self._high_water = 0
        self._high_water_by_format: dict[str, int] = {}

    def reserve(self, extents: Counter[ExtentKind], beside: Slab | None = None) -> Lease:
        """A lease of all of these extents, none of them in the slab `beside`: others must have place for them. BudgetError,
        and nothing changed, where they do not fit."""
        if not extents:
            return Lease(self, {})
        if (missing := self._slabs.missing(extents)) > 0:
            free = self._slabs.free_count
            raise BudgetError(
                f"pool: {missing + free} more slabs of {self.size.slab_bytes} bytes are needed and {free} are free. "
                "Use a larger pool, less context or fewer sequences"
            )
        # The largest first, as `slabs_missing` counts: smaller ones find room in the ends.
        kinds = sorted((kind for kind, count in extents.items() if count), key=lambda kind: -kind.bytes)
        waiting = {kind: [self._take(kind, beside) for _ in range(extents[kind])][::-1] for kind in kinds}
        self._note_high_water()
        return Lease(self, waiting)

    def pin(self, offset: int, kind: ExtentKind) -> None:
        """An extent of a file behind the pool, for all to share. BudgetError where no page-table word reaches it."""
        assert offset >= self.size.pool_bytes and offset % OFFSET_UNIT == 0, f"{offset} is no place behind the pool"
        if offset + kind.bytes > LARGEST_POOL:
            raise BudgetError(
                f"pool and prefixes: more than {LARGEST_POOL >> 30} GiB, which a page table reaches. Use fewer prefixes, less "
                "context or fewer sequences"
            )
        if offset not in self._extents:
            self._extents[offset] = _Extent(kind, _OUTSIDE, _PINNED)
            self._baked_bytes += kind.bytes
        assert self._extents[offset].kind == kind, "an extent in two forms"

    def share(self, offsets: Iterable[int]) -> None:
        """One more sequence that holds the extents at `offsets`."""
        for offset in offsets:
            extent = self._extents[offset]
            if extent.references == extent.cuts:
                self._cached_by_format[extent.kind.page_format] -= extent.kind.bytes
                extent.piece.held += 1
            extent.references += 1
        self._note_high_water()

    def release(self, offset: int) -> None:
        """One sequence fewer; the last holder frees the extent, and the slab too when it was its last extent."""
        extent = self._extents[offset]
        extent.references -= 1
        if extent.references > extent.cuts:
            return
        extent.piece.held -= 1
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
        self._bytes_by_format[extent.kind.page_format] -= extent.kind.bytes
        self._slabs.give_back(offset, extent.piece)

    def references(self, offset: int) -> int:
        """Holders of the extent at `offset`; 0 where none is, and very many for one of a file."""
        extent = self._extents.get(offset)
        return extent.references if extent else 0

    def slab_of(self, offset: int) -> Slab:
        """The slab in which the extent at `offset` lies, which is none of a file."""
        return self._slabs.slab_of(offset)

    def scattered(self) -> list[Slab]:
        """Slabs whose extents would all find place in others that already have their sizes, those with the fewest first."""
        return self._slabs.scattered()

    def room(self, groups: tuple[GroupPages, ...], promised: Mapping[int, int] = NOTHING) -> Room:
        """A picture of what can be reserved now, for pages of these layer groups. `promised`: by extent bytes, the most that
        sequences will hold; it is asked for where cuts can go."""
        return self._slabs.room(groups, promised)

    @property
    def used_bytes(self) -> int:
        """Bytes of extents that somebody holds, leases included."""
        return self._bytes_by_format.total()

    @property
    def cached_bytes(self) -> int:
        """Of these, bytes of extents that only cuts hold."""
        return self._cached_by_format.total()

    def counts(self) -> PoolCounts:
        return PoolCounts(
            pool_bytes=self.size.pool_bytes,
            used_bytes=self.used_bytes,
            free_bytes=self._slabs.free_bytes,
            slack_bytes=self._slabs.slack_bytes,
            cached_bytes=self.cached_bytes,
            high_water_bytes=self._high_water,
            bytes_by_format=dict(+self._bytes_by_format),
            high_water_by_format=dict(self._high_water_by_format),
            baked_bytes=self._baked_bytes,
        )

    def check(self, held: Counter[int], cuts: Counter[int] = NOTHING) -> None:
        """Asserts that slabs, extents, lists and counts tell the same story, and that the extents in use are those that their
        holders know of: `held` is offset -> sequences, `cuts` offset -> cuts."""
        ours = {offset: extent for offset, extent in self._extents.items() if extent.piece is not _OUTSIDE}
        holders = {offset: extent.references - _PINNED * (offset not in ours) for offset, extent in self._extents.items()}
        assert {offset: count for offset, count in holders.items() if count} == held + cuts, "an extent nobody knows, or lost"
        assert {offset: extent.cuts for offset, extent in self._extents.items() if extent.cuts} == cuts, "cuts are off"
        in_use = {offset: extent.piece for offset, extent in ours.items()}
        self._slabs.check(in_use, {offset for offset in ours if not self.is_cached(offset)})
        assert all(extent.kind.bytes == extent.piece.extent_bytes for extent in ours.values()), "two sizes in a piece"
        assert all(extent.references > 0 for extent in ours.values()), "an extent in use that nobody holds"
        counts = self.counts()
        assert counts.used_bytes == sum(extent.kind.bytes for extent in ours.values()), "used bytes are off"
        assert counts.used_bytes + counts.free_bytes + counts.slack_bytes == counts.pool_bytes, "bytes are lost"
        by_format: Counter[str] = Counter()
        for extent in ours.values():
            by_format[extent.kind.page_format] += extent.kind.bytes
        assert counts.bytes_by_format == by_format, "bytes of a format are off"
        cached: Counter[str] = Counter()
        for extent in ours.values():
            if extent.references == extent.cuts:
                cached[extent.kind.page_format] += extent.kind.bytes
        assert +self._cached_by_format == cached, "cached bytes are off"
        assert counts.held_bytes <= counts.high_water_bytes == sum(counts.high_water_by_format.values())

    def _note_high_water(self) -> None:
        if (held := self.used_bytes - self.cached_bytes) > self._high_water:
            self._high_water = held
            self._high_water_by_format = dict(self._bytes_by_format - self._cached_by_format)

    def _take(self, kind: ExtentKind, beside: Slab | None) -> int:
        offset, piece = self._slabs.take(kind.bytes, beside)
        piece.held += 1
        self._extents[offset] = _Extent(kind, piece)
        self._bytes_by_format[kind.page_format] += kind.bytes
        return offset
