"""Anchors of a text: what all signals found, weighed. Owns: Anchors, and how signals add up. Needs: the modules of signals.
Never: tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from edge.anchors.blocks import find_blocks
from edge.anchors.cohesion import Breaks, find_breaks
from edge.anchors.config import AnchorConfig
from edge.anchors.found import NOTHING, Found, found_places, merged
from edge.anchors.lines import Lines, split_lines
from edge.anchors.markup import find_markup
from edge.anchors.numbering import find_numbered
from edge.anchors.phrases import Phrases
from edge.anchors.print_pages import find_print_pages
from edge.anchors.signals import DEEPEST, MARKS, SIGNALS
from edge.anchors.titles import find_titles
from edge.anchors.turns import find_turns
from edge.anchors.wording import find_worded

_NO_MARKS: Mapping[str, np.ndarray] = {name: np.zeros(0, np.int64) for name in MARKS}


@dataclass(frozen=True, slots=True)
class Anchors:
    """Anchors in the order of the text; positions are characters."""

    positions: np.ndarray  # int64 [anchors], ascending, all different
    ends: np.ndarray  # int64 [anchors], behind the heading
    levels: np.ndarray  # int8 [anchors], 1 to 6; DEEPEST for printed pages and topic breaks
    strengths: np.ndarray  # float64 [anchors], sum of the weights of its signals
    signals: np.ndarray  # int64 [anchors], bit i: signals.SIGNALS[i]
    marks: Mapping[str, np.ndarray]  # by signals.MARKS: int64, where lists' items, code blocks and blocks begin
    places: tuple[Found, ...]  # by signal: all that it found, anchors or not
    wordings: Mapping[tuple[str, str], int]  # (language, domain): phrases found
    characters: int

    def __len__(self) -> int:
        return len(self.positions)


def find_anchors(text: str, config: AnchorConfig, phrases: Phrases) -> Anchors:
    """The anchors of `text`. Time and memory grow with its length alone, whatever it holds; 1 MB takes under 0.5 s."""
    lines = split_lines(text)
    if lines.blank.all():
        return _combined(lines, (NOTHING,) * len(SIGNALS), None, config, _NO_MARKS, {})
    markup = find_markup(lines)
    if markup.is_html:
        places = (NOTHING, markup.html) + (NOTHING,) * (len(SIGNALS) - 2)
        return _combined(lines, places, None, config, _NO_MARKS, {})
    pages = find_print_pages(lines)
    blocks = find_blocks(lines, markup.code | pages.furniture)
    numbering = find_numbered(lines, blocks)
    wording = find_worded(lines, blocks, phrases, numbering.contents)
    is_marked = markup.is_marked_up and len(markup.markdown) + len(markup.html) >= config.marked_headings
    breaks = find_breaks(
        lines, blocks, depth_words=config.depth_words, paragraph_words=config.paragraph_words, factor=config.depth_factor
    )
    places = (
        markup.markdown,
        markup.html,
        find_turns(lines, markup.code),
        NOTHING if is_marked else numbering.found,
        wording.found,
        NOTHING if is_marked else find_titles(lines, blocks, merged(numbering.contents, wording.captions)),
        pages.found,
        found_places(breaks.positions, breaks.positions, np.full(len(breaks.positions), DEEPEST)),
    )
    marks = {
        "list": merged(lines.firsts[blocks.lines[blocks.bullet]], numbering.items),
        "fence": markup.fences,
        "block": lines.firsts[blocks.lines[blocks.opens]],
    }
    wordings = Counter[tuple[str, str]]((phrase.language, phrase.domain) for phrase in wording.phrases)
    return _combined(lines, places, breaks, config, marks, wordings)


def _combined(
    lines: Lines,
    places: tuple[Found, ...],
    breaks: Breaks | None,
    config: AnchorConfig,
    marks: Mapping[str, np.ndarray],
    wordings: Mapping[tuple[str, str], int],
) -> Anchors:
    """Sums of the weights at each place; those that reach `least`, and topic breaks where a section is too long."""
    every = merged(*(found.positions for found in places))
    strengths, signals = np.zeros(len(every)), np.zeros(len(every), np.int64)
    ends, levels = every.copy(), np.full(len(every), DEEPEST, np.int8)
    for bit in reversed(range(len(SIGNALS))):  # the first signal has the last word on level and end
        found = places[bit]
        at = np.searchsorted(every, found.positions)
        strengths[at] += config.weights.values[bit]
        signals[at] |= 1 << bit
        ends[at], levels[at] = np.maximum(found.ends, ends[at]), found.levels
    chosen = strengths >= config.least - 1e-9
    if breaks is not None and config.weights.statistics > 0:
        cuts = _cuts(every[chosen], breaks, len(lines.codes), config.section_chars)
        chosen[np.searchsorted(every, cuts)] = True
    return Anchors(
        every[chosen], ends[chosen], levels[chosen], strengths[chosen], signals[chosen], marks, places, wordings,
        len(lines.codes),
    )  # fmt: skip


def _cuts(anchors: np.ndarray, breaks: Breaks, characters: int, most: int) -> np.ndarray:
    """The deepest break of each stretch of a section that is longer than `most`."""
    cuts: list[int] = []
    borders = np.concatenate(([0], anchors, [characters]))
    for index in np.flatnonzero(np.diff(borders) > most).tolist():
        begin, end = int(borders[index]), int(borders[index + 1])
        while end - begin > most:
            # Not right behind the last border, and not so late that the piece is too long; else the next one that comes.
            low, high, last = np.searchsorted(breaks.positions, (begin + most // 4, begin + most + 1, end))
            if low < min(high, last):
                pick = low + int(np.argmax(breaks.depths[low : min(high, last)]))
            elif low < last:
                pick = int(low)
            else:
                break
            begin = int(breaks.positions[pick])
            cuts.append(begin)
    return np.array(cuts, np.int64)
