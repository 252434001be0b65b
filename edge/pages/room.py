"""What a pool could still hand out, as a frozen picture. Owns: Room. Needs: geometry. Never: changes anything."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from dataclasses import dataclass, field

from edge.pages.geometry import ExtentKind, GroupPages


@dataclass(frozen=True, slots=True)
class Room:  # the pool writes, the scheduler reads
    """Free slabs, and free extents in slabs that already have a size. Exact: what it holds, `Pool.reserve` gives."""

    slab_bytes: int
    free_slabs: int
    free_extents: dict[int, int]  # extent bytes: free extents in slabs that have that size; never changed after it is made
    ends: tuple[int, ...] | None  # bytes at the ends of slabs in use that nothing has been put into, ascending; None: not used
    groups: tuple[GroupPages, ...]
    limits: dict[int, int] = field(default_factory=dict)  # extents of a size that may be taken (scatter.py); {}: all

    def holds(self, extents: Counter[ExtentKind], spare: int = 0) -> bool:
        """Whether these extents can be had together, and so many slabs are free behind it."""
        if not extents:  # most steps decode inside a page
            return True
        return slabs_missing(extents, self.free_extents, self.ends, self.slab_bytes) + spare <= self.free_slabs

    def scatters(self, extents: Counter[ExtentKind]) -> bool:
        """Whether these extents would lie in too many slabs (scatter.py)."""
        if not self.limits:
            return False
        by_size: Counter[int] = Counter()
        for kind, count in extents.items():
            by_size[kind.bytes] += count
        return any(by_size[size] > limit for size, limit in self.limits.items())


def slabs_missing(
    extents: Counter[ExtentKind], free_extents: dict[int, int], ends: tuple[int, ...] | None, slab_bytes: int
) -> int:
    """Free slabs that must take a size before `extents` can be handed out. As the pool does it: the largest extents first, each
    size in what it has, then in the smallest ends (ascending in `ends`) that hold one of it, then in free slabs, whose ends are
    left for smaller sizes. None: ends are not used."""
    by_size: Counter[int] = Counter()
    for kind, count in extents.items():
        by_size[kind.bytes] += count
    left, missing = list(ends or ()), 0
    for size in sorted(by_size, reverse=True):
        beyond = by_size[size] - free_extents.get(size, 0)
        while beyond > 0:
            index = bisect_left(left, size)
            if index < len(left):
                room = left.pop(index)
            else:
                room = slab_bytes
                missing += 1
            beyond -= room // size
            if ends is not None:
                insort(left, room % size)
    return missing
