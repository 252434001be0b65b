"""Zones and sections of pages, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.anchors.zones import ZONES, plan_zones


@given(
    tokens=st.integers(1, 3000), places=st.lists(st.integers(0, 2999), max_size=12), anchor_window=st.integers(0, 600),
    section_window=st.integers(0, 900),
)  # fmt: skip
def test_zones_are_those_of_plain_loops(tokens: int, places: list[int], anchor_window: int, section_window: int) -> None:
    anchors = sorted({place for place in places if place < tokens})
    found = plan_zones(np.array(anchors, np.int64), tokens, anchor_window=anchor_window, section_window=section_window)
    starts = sorted({0, *anchors})
    for page, (zone, section) in enumerate(zip(found.zones.tolist(), found.sections.tolist(), strict=True)):
        held = range(page * 32, page * 32 + 32)
        if page == 0:
            wanted = "sink"
        elif (page + 1) * 32 > max(128 * (tokens // 128 - 1), 0):
            wanted = "recent"
        elif any(abs(token - anchor) <= anchor_window for token in held for anchor in anchors):
            wanted = "anchor"
        elif any(0 <= token - anchor <= section_window for token in held for anchor in anchors):
            wanted = "section"
        else:
            wanted = "background"
        assert ZONES[zone] == wanted, page
        assert section == max(i for i, start in enumerate(starts) if start <= page * 32)
    assert sum(found.counts().values()) == len(found.zones) == -(-tokens // 32)
    pages = [found.section_pages(i) for i in range(len(starts))]
    assert pages[0][0] == 0 and pages[-1][1] == len(found.zones)
    for (first, behind), start, end in zip(pages, starts, [*starts[1:], tokens], strict=True):
        assert {token // 32 for token in range(start, end)} <= set(range(first, behind))


def test_the_articles_window_covers_a_structured_document() -> None:
    anchors = np.arange(0, 8000, 700)
    shares = [
        plan_zones(anchors, 8192, anchor_window=window, section_window=1024).counts()["anchor"] / 256 for window in (32, 512)
    ]
    assert shares[0] < 0.2
    assert shares[1] > 0.9


def test_an_anchor_outside_of_the_text_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        plan_zones(np.array([64]), 64, anchor_window=1, section_window=1)
