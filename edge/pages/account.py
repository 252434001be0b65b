"""What pages take, by zone and page format. Owns: the sums. Needs: geometry, zones. Never: state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from edge.anchors.zones import ZONES
from edge.contract import EMPTY, FORMAT_SHIFT, PAGE_FORMATS
from edge.pages.geometry import GroupPages

ZoneBytes = dict[str, dict[str, int]]  # zone -> page format -> bytes


def zone_bytes(groups: tuple[GroupPages, ...], words: np.ndarray, zones: np.ndarray) -> ZoneBytes:
    """Bytes of the extents at `words`, int32 [groups, pages, 2], of pages in `zones`, uint8 [pages]."""
    found: dict[str, Counter[str]] = {}
    for group, pages in enumerate(groups):
        for side, kinds in enumerate(([each.key for each in pages.levels], [each.value for each in pages.levels])):
            row = words[group, :, side]
            for kind in dict.fromkeys(kinds):
                stands = (row != EMPTY) & (row >> FORMAT_SHIFT == PAGE_FORMATS[kind.page_format])
                counts = np.bincount(zones[stands], minlength=len(ZONES))
                for zone in np.flatnonzero(counts).tolist():
                    found.setdefault(ZONES[zone], Counter())[kind.page_format] += kind.bytes * int(counts[zone])
    return {zone: dict(found[zone]) for zone in ZONES if zone in found}


def add_by_zone(parts: Iterable[ZoneBytes]) -> ZoneBytes:
    """The sum of several."""
    total: dict[str, Counter[str]] = {}
    for part in parts:
        for zone, formats in part.items():
            total.setdefault(zone, Counter()).update(formats)
    return {zone: dict(total[zone]) for zone in ZONES if zone in total}
