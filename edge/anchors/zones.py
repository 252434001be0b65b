"""Which zone a page of KV memory is in, and which section. Owns: zones. Needs: contract. Never: formats; a policy gives a zone
its precision.

    sink        the first page
    recent      pages that the next query reads unsealed: behind 128 * (t // 128 - 1), t tokens being there
    anchor      a token of the page is at most `anchor_window` from an anchor
    section     a token of the page is at most `section_window` behind the anchor of its section
    background  the rest
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edge.contract import PAGE_TOKENS, SEAL_TOKENS

SINK, RECENT, ANCHOR, SECTION, BACKGROUND = range(5)
ZONES = ("sink", "recent", "anchor", "section", "background")


@dataclass(frozen=True, slots=True)
class PageZones:
    """One entry for each page of 32 tokens; the last page may be partly filled."""

    zones: np.ndarray  # uint8 [pages]
    sections: np.ndarray  # int32 [pages], the section that holds the page's first token; section 0 begins with the text
    section_starts: np.ndarray  # int64 [sections], tokens, ascending; 0 and then the anchors

    def counts(self) -> dict[str, int]:
        """Pages by zone."""
        found = np.bincount(self.zones, minlength=len(ZONES))
        return {name: int(count) for name, count in zip(ZONES, found, strict=True)}

    def section_pages(self, section: int) -> tuple[int, int]:
        """First page and the one behind the last that hold a token of the section."""
        ends = np.append(self.section_starts[1:], len(self.zones) * PAGE_TOKENS)
        return int(self.section_starts[section]) // PAGE_TOKENS, min(-(-int(ends[section]) // PAGE_TOKENS), len(self.zones))


def plan_zones(anchor_tokens: np.ndarray, num_tokens: int, *, anchor_window: int, section_window: int) -> PageZones:
    """Zones of a sequence of `num_tokens` tokens with anchors at these tokens (ascending; some may be equal)."""
    pages = -(-num_tokens // PAGE_TOKENS)
    anchors = np.unique(np.asarray(anchor_tokens, np.int64))
    assert not len(anchors) or (anchors[0] >= 0 and anchors[-1] < num_tokens), "anchors lie inside of the text"
    zones = np.full(pages, BACKGROUND, np.uint8)
    zones[_covered(anchors, anchors + section_window, pages)] = SECTION
    zones[_covered(np.maximum(anchors - anchor_window, 0), anchors + anchor_window, pages)] = ANCHOR
    border = max(SEAL_TOKENS * (num_tokens // SEAL_TOKENS - 1), 0)
    zones[border // PAGE_TOKENS :] = RECENT
    zones[:1] = SINK
    starts = np.union1d(anchors, [0]).astype(np.int64)
    sections = np.searchsorted(starts, np.arange(pages) * PAGE_TOKENS, side="right") - 1
    return PageZones(zones, sections.astype(np.int32), starts)


def _covered(firsts: np.ndarray, lasts: np.ndarray, pages: int) -> np.ndarray:
    """bool [pages]: a token of firsts[i] .. lasts[i] lies in the page."""
    change = np.zeros(pages + 1, np.int64)
    np.add.at(change, firsts // PAGE_TOKENS, 1)
    np.add.at(change, np.minimum(lasts // PAGE_TOKENS + 1, pages), -1)
    covered: np.ndarray = np.cumsum(change[:-1]) > 0
    return covered
