"""How far sequences may scatter over slabs while cuts make room for them. Owns: the count. Needs: slabs as pictures. Never:
changes anything.

A slab holds extents of one size, so it takes another size only when it is empty. Where cuts go one by one, sequences get the
places that they leave, a few in each of many slabs; and when all cuts are gone, no slab might be empty for another size. So a
size gets no more slabs with extents of sequences than it needs for what is promised and nobody else will need: more cuts go
instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edge.pages.fit import PoolSize


@dataclass(frozen=True, slots=True)
class SlabUse:
    """A slab in use, as the pool takes extents from it."""

    is_busy: bool  # sequences have extents in it; else cuts alone
    pieces: tuple[tuple[int, int], ...]  # of each run of extents of one size: extent bytes, free ones; the first gives the size


def scatter_limits(slabs: Sequence[SlabUse], promised: Mapping[int, int], size: PoolSize) -> dict[int, int]:
    """By extent bytes: how many may be taken so that slabs still suffice for what is promised once all cuts are gone.
    `promised`: by extent bytes, the most that sequences will hold. Extents are taken in busy slabs first, then in the others in
    order, then in new ones."""
    busy: Counter[int] = Counter()
    within: Counter[int] = Counter()  # free extents in busy slabs
    others: dict[int, list[int]] = {}  # of each piece elsewhere: free extents
    for slab in slabs:
        busy[slab.pieces[0][0]] += slab.is_busy
        for extent, free in slab.pieces:
            if slab.is_busy:
                within[extent] += free
            elif free:
                others.setdefault(extent, []).append(free)
    shares = {extent: -(-count // (size.slab_bytes // extent)) for extent, count in promised.items()}
    owed = sum(max(busy[extent], shares.get(extent, 0)) for extent in {*busy, *shares})
    spare = max(0, size.pool_bytes // size.slab_bytes - owed)
    limits = {}
    for extent, share in shares.items():
        more = max(0, share - busy[extent]) + spare
        taken = others.get(extent, [])[:more]
        limits[extent] = within[extent] + sum(taken) + (more - len(taken)) * (size.slab_bytes // extent)
    return limits
