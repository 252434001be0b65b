"""Where a baked prefix is cut beside its end. Owns: the choice of sections. Needs: anchors, an opening. Never: pages."""

from __future__ import annotations

from typing import NamedTuple

from edge.contract import PAGE_TOKENS
from edge.text.opening import Opening


class SectionCut(NamedTuple):
    tokens: int  # a multiple of PAGE_TOKENS
    title: str  # of the section that ends there; "": the end of all, or a section without a heading


def plan_cuts(opening: Opening, most: int) -> tuple[SectionCut, ...]:
    """The end of `opening`, and up to `most` ends of sections of its document, ascending; each at the page border in front of
    it. The ends in front of the highest headings count first; of one level, those that cut the text most evenly. None where the
    opening is shorter than a page."""
    end = len(opening.token_ids) // PAGE_TOKENS * PAGE_TOKENS
    if not end:
        return ()
    chosen: dict[int, str] = {}
    by_level = _section_ends(opening) if most else {}
    for level in sorted(by_level):
        free = {tokens: title for tokens, title in by_level[level].items() if 0 < tokens < end and tokens not in chosen}
        chosen |= _most_even(free, end, most - len(chosen))
    return (*(SectionCut(tokens, title) for tokens, title in sorted(chosen.items())), SectionCut(end, ""))


def _section_ends(opening: Opening) -> dict[int, dict[int, str]]:
    """By level of the heading that follows: the page border in front of it, and the title of what ends there."""
    from edge.anchors.config import AnchorConfig
    from edge.anchors.detect import find_anchors
    from edge.anchors.phrases import load_phrases
    from edge.anchors.report import section_title

    begin = opening.text.find(opening.document[:1000])
    if not opening.document or begin < 0:  # a template may write it in another form
        return {}
    anchors = find_anchors(opening.document, AnchorConfig.load(), load_phrases())
    starts = (opening.token_starts.searchsorted(anchors.positions + begin, side="left") // PAGE_TOKENS * PAGE_TOKENS).tolist()
    ends: dict[int, dict[int, str]] = {}
    title = ""
    for position, head_end, level, tokens in zip(
        anchors.positions.tolist(), anchors.ends.tolist(), anchors.levels.tolist(), starts, strict=True
    ):
        ends.setdefault(level, {}).setdefault(tokens, title)
        title = section_title(opening.document[position:head_end])
    return ends


def _most_even(free: dict[int, str], end: int, count: int) -> dict[int, str]:
    """Up to `count` of these."""
    if len(free) <= count:
        return free
    left, chosen = dict(free), {}
    for number in range(1, count + 1):
        nearest = min(left, key=lambda tokens: abs(tokens - end * number / (count + 1)))
        chosen[nearest] = left.pop(nearest)
    return chosen
