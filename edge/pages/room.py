"""What a pool could still hand out, as a frozen picture. Owns: Room. Needs: geometry. Never: changes anything."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from edge.pages.geometry import ExtentKind, GroupPages, extents_of


@dataclass(frozen=True, slots=True)
class Room:  # the pool writes, the scheduler reads
    """Free slabs, and free extents in slabs that already have a size. Exact: what it holds, `Pool.reserve` gives."""

    slab_bytes: int
    free_slabs: int
    free_extents: dict[int, int]  # extent bytes: free extents in slabs of that size; never changed after it is made
    groups: tuple[GroupPages, ...]

    def holds(self, pages: tuple[int, ...]) -> bool:
        """Whether so many pages of each layer group can be had together."""
        if not any(pages):  # most steps decode inside a page
            return True
        return slabs_missing(extents_of(self.groups, pages), self.free_extents, self.slab_bytes) <= self.free_slabs


def slabs_missing(extents: Counter[ExtentKind], free_extents: dict[int, int], slab_bytes: int) -> int:
    """Free slabs that must take a size before `extents` can be handed out."""
    by_size: Counter[int] = Counter()
    for kind, count in extents.items():
        by_size[kind.bytes] += count
    missing = 0
    for size, count in by_size.items():
        beyond = count - free_extents.get(size, 0)
        if beyond > 0:
            missing += -(-beyond // (slab_bytes // size))
    return missing
