"""KV extents, free and in use. Owns: slabs, offsets, reference counts. Needs: geometry. Never: tensors, sequences."""

from __future__ import annotations

import heapq
from bisect import insort
from collections import Counter
from dataclasses import dataclass, field
from types import TracebackType

from edge.contract import OFFSET_UNIT
from edge.errors import BudgetError
from edge.pages.geometry import LARGEST_POOL, ExtentKind, GroupPages, PoolSize
from edge.pages.room import Room, slabs_missing


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """Bytes of the pool: used + free + slack is the whole."""

    pool_bytes: int
    used_bytes: int  # in extents that somebody holds
    free_bytes: int  # free slabs, and free extents of slabs in use
    slack_bytes: int  # ends of slabs that no extent of their size fits
    high_water_bytes: int  # the most that `used_bytes` has been
    bytes_by_format: dict[str, int]  # of the used bytes


@dataclass(slots=True)
class _Slab:
    extent_bytes: int
    free: list[int]  # a heap of offsets


@dataclass(slots=True)
class _Extent:
    kind: ExtentKind
    references: int = 1


@dataclass(slots=True)
class Lease:
    """Extents that were reserved and belong to nobody yet. Leaving the `with` block gives back what is not committed."""

    _pool: Pool
    _waiting: dict[ExtentKind, list[int]]  # not taken yet
    _taken: list[int] = field(default_factory=list)
    _open: bool = True

    def take(self, kind: ExtentKind) -> int:
        """Offset of one of the reserved extents of this kind."""
        assert self._open and self._waiting.get(kind), f"no {kind} left in this lease"
        offset = self._waiting[kind].pop()
        self._taken.append(offset)
        return offset

    def commit(self) -> None:
        """The taken extents stay with whoever took them; what was reserved beyond that goes back."""
        assert self._open
        self._taken.clear()
        self._close()

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._open:
            self._close()

    def _close(self) -> None:
        self._open = False
        for offset in self._taken:
            self._pool.release(offset)
        for offsets in self._waiting.values():
            for offset in offsets:
                self._pool.release(offset)
        self._waiting.clear()


class Pool:
    """A fixed number of slabs. Lowest offsets first, so equal calls give equal offsets and used memory stays together."""

    def __init__(self, size: PoolSize) -> None:
        assert size.slab_bytes % OFFSET_UNIT == 0 and size.pool_bytes % size.slab_bytes == 0, size
        assert 0 < size.pool_bytes <= LARGEST_POOL, size
        self.size = size
        self._free_slabs = list(range(size.pool_bytes // size.slab_bytes))  # a heap of slab numbers
        self._slabs: dict[int, _Slab] = {}  # by slab number, those that have a size
        self._open: dict[int, list[int]] = {}  # extent bytes: numbers of slabs with a free extent, ascending
        self._free_extents: Counter[int] = Counter()  # extent bytes: free extents in slabs of that size
        self._extents: dict[int, _Extent] = {}  # by offset, those in use
        self._bytes_by_format: Counter[str] = Counter()
        self._high_water = 0

    def reserve(self, extents: Counter[ExtentKind]) -> Lease:
        """A lease of all of these extents. BudgetError, and nothing changed, where they do not fit."""
        if not extents:
            return Lease(self, {})
        missing = slabs_missing(extents, self._free_extents, self.size.slab_bytes)
        if missing > len(self._free_slabs):
            raise BudgetError(
                f"pool: {missing} more slabs of {self.size.slab_bytes} bytes are needed and {len(self._free_slabs)} are free. "
                "Use a larger pool, less context or fewer sequences"
            )
        waiting = {kind: [self._take(kind) for _ in range(count)][::-1] for kind, count in extents.items() if count}
        self._high_water = max(self._high_water, self.used_bytes)
        return Lease(self, waiting)

    def share(self, offset: int) -> None:
        """One more holder of the extent at `offset`."""
        self._extents[offset].references += 1

    def release(self, offset: int) -> None:
        """One holder fewer; the last one frees the extent, and the slab too when it was its last extent."""
        extent = self._extents[offset]
        extent.references -= 1
        if extent.references:
            return
        del self._extents[offset]
        size = extent.kind.bytes
        number = offset // self.size.slab_bytes
        slab = self._slabs[number]
        self._bytes_by_format[extent.kind.page_format] -= size
        if not slab.free:
            insort(self._open.setdefault(size, []), number)
        heapq.heappush(slab.free, offset)
        self._free_extents[size] += 1
        per_slab = self.size.slab_bytes // size
        if len(slab.free) == per_slab:
            self._open[size].remove(number)
            self._free_extents[size] -= per_slab
            del self._slabs[number]
            heapq.heappush(self._free_slabs, number)

    def references(self, offset: int) -> int:
        """Holders of the extent at `offset`; 0 where none is."""
        extent = self._extents.get(offset)
        return extent.references if extent else 0

    def room(self, groups: tuple[GroupPages, ...]) -> Room:
        """A picture of what can be reserved now, for pages of these layer groups."""
        return Room(self.size.slab_bytes, len(self._free_slabs), dict(self._free_extents), groups)

    @property
    def used_bytes(self) -> int:
        """Bytes of extents that somebody holds, leases included."""
        return self._bytes_by_format.total()

    def counts(self) -> PoolCounts:
        used = self.used_bytes
        free = len(self._free_slabs) * self.size.slab_bytes + sum(size * count for size, count in self._free_extents.items())
        return PoolCounts(
            pool_bytes=self.size.pool_bytes,
            used_bytes=used,
            free_bytes=free,
            slack_bytes=sum(self.size.slab_bytes % slab.extent_bytes for slab in self._slabs.values()),
            high_water_bytes=self._high_water,
            bytes_by_format={name: count for name, count in self._bytes_by_format.items() if count},
        )

    def check(self, held: Counter[int]) -> None:
        """Asserts that slabs, extents, lists and counts tell the same story, and that the extents in use are those that their
        holders know of: `held` is offset -> holders."""
        assert {offset: extent.references for offset, extent in self._extents.items()} == held, (
            "an extent nobody knows, or lost"
        )
        count = self.size.pool_bytes // self.size.slab_bytes
        assert sorted([*self._free_slabs, *self._slabs]) == list(range(count)), "a slab is lost or double"
        free_extents: Counter[int] = Counter()
        open_slabs: dict[int, list[int]] = {}
        for number, slab in sorted(self._slabs.items()):
            start, size = number * self.size.slab_bytes, slab.extent_bytes
            used = [offset for offset in self._extents if start <= offset < start + self.size.slab_bytes]
            assert all(self._extents[offset].kind.bytes == size for offset in used), "two sizes in one slab"
            assert sorted(used + slab.free) == [start + i * size for i in range(self.size.slab_bytes // size)], (
                "an extent is lost"
            )
            assert used, "an empty slab keeps its size"
            free_extents[size] += len(slab.free)
            if slab.free:
                open_slabs.setdefault(size, []).append(number)
        assert {size: slabs for size, slabs in self._open.items() if slabs} == open_slabs, (
            "the open slabs are not those with room"
        )
        assert +self._free_extents == +free_extents, "the count of free extents is off"
        assert all(offset // self.size.slab_bytes in self._slabs for offset in self._extents), "an extent in a free slab"
        assert all(extent.references > 0 for extent in self._extents.values()), "an extent in use that nobody holds"
        counts = self.counts()
        assert counts.used_bytes == sum(extent.kind.bytes for extent in self._extents.values()), "used bytes are off"
        assert counts.used_bytes + counts.free_bytes + counts.slack_bytes == counts.pool_bytes, "bytes are lost"
        assert counts.used_bytes <= counts.high_water_bytes

    def _take(self, kind: ExtentKind) -> int:
        size = kind.bytes
        open_slabs = self._open.setdefault(size, [])
        if not open_slabs:
            number = heapq.heappop(self._free_slabs)
            start = number * self.size.slab_bytes
            free = [start + i * size for i in range(self.size.slab_bytes // size)]  # ascending, so already a heap
            self._slabs[number] = _Slab(size, free)
            self._free_extents[size] += len(free)
            open_slabs.append(number)
        slab = self._slabs[open_slabs[0]]
        offset = heapq.heappop(slab.free)
        if not slab.free:
            del open_slabs[0]
        self._free_extents[size] -= 1
        self._extents[offset] = _Extent(kind)
        self._bytes_by_format[kind.page_format] += size
        return offset
