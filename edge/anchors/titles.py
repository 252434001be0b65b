"""Headings that nothing marks: a short line by itself above a paragraph. Owns: what looks like a title. Needs: lines, blocks.
Never: numbers, words."""

from __future__ import annotations

import numpy as np

from edge.anchors.blocks import Blocks
from edge.anchors.found import NOTHING, Found, found_places
from edge.anchors.lines import DIGIT, LETTER, LOWER, UPPER, Lines

_MOST_CHARS, _MOST_LETTERS = 90, 32  # of a title; the second in scripts without spaces
_MOST_WORDS = 14
_NOT_LAST = ".,;:!…。，；：！、"  # a title ends with none of these; a question may be one
_NOT_IN = "{}=;<>|\\$@~^[]"  # of code, paths and tables
_OPENERS = "\"'«“„¿¡(‘「『《【"
_PICTURES, _SYMBOLS = 0x1F000, range(0x2600, 0x27C0)  # emoji
_STACK = 3  # titles one above the other: chapter, section, subsection
_TITLE_LEVEL = 3  # nothing tells the level of a title without mark and number


def find_titles(lines: Lines, blocks: Blocks, others: np.ndarray) -> Found:
    """Short lines that stand apart, begin large, do not end as a sentence does, hold no code, and have a paragraph below.

    `others`: first characters of lines that look like titles, and are of a table of contents, or name a figure."""
    if not len(blocks.lines):
        return NOTHING
    own, classes = blocks.lines, lines.classes
    apart = blocks.opens & blocks.closes
    if not blocks.spaced:  # a line a block: a title is shorter than both of its neighbours
        apart = _between_long(blocks.lengths)
    most = np.where(blocks.ideographic, _MOST_LETTERS, _MOST_CHARS)
    is_short = (blocks.lengths <= most) & (blocks.lengths >= 2) & (blocks.words <= _MOST_WORDS)
    first = lines.firsts[own]
    opener = np.isin(lines.code_at(first), _codes(_OPENERS))
    begin = np.where(opener, first + 1, first)
    begin_class = classes[np.minimum(begin, len(classes) - 1)]
    begins_large = (begin_class == UPPER) | (begin_class == LETTER) | (begin_class == DIGIT)
    last = lines.code_at(lines.lasts[own] - 1)
    letters = lines.counts((classes == UPPER) | (classes == LOWER) | (classes == LETTER))[own]
    digits = lines.counts(classes == DIGIT)[own]
    code = lines.counts(np.isin(lines.codes, _codes(_NOT_IN)))[own]
    # A bracket may end a title, but not a call, a word by itself, or a remark; no title ends with a picture.
    bare = (lines.code_at(lines.lasts[own] - 2) == ord("(")) | (blocks.words < 2) | (lines.code_at(first) == ord("("))
    call = (last == ord(")")) & bare
    picture = (last >= _PICTURES) | (last >= _SYMBOLS.start) & (last < _SYMBOLS.stop)
    name = (blocks.words < 2) & (lines.counts(lines.codes == ord("_"))[own] > 0) & ~blocks.ideographic
    candidate = (
        apart & is_short & begins_large & ~blocks.bullet & ~np.isin(last, _codes(_NOT_LAST)) & (code == 0)
        & (letters >= 2) & (letters > digits) & ~blocks.tabular & ~(call | picture | name)
        & ~np.isin(first, others, kind="sort")
    )  # fmt: skip
    follows = np.append((blocks.body | blocks.bullet | (code > 0))[1:], False)
    title = candidate & follows
    for _ in range(_STACK - 1):
        title |= candidate & np.append(title[1:], False)
    chosen = own[title]
    return found_places(lines.firsts[chosen], lines.lasts[chosen], np.full(len(chosen), _TITLE_LEVEL))


def _between_long(lengths: np.ndarray) -> np.ndarray:
    """Lines with a much longer one below, and above, or nothing above."""
    below = np.append(lengths[1:], 0)
    above = np.append(np.iinfo(np.int64).max, lengths[:-1])
    return (below >= 2 * lengths) & (above >= lengths + 8)


def _codes(chars: str) -> np.ndarray:
    return np.array([ord(char) for char in chars], np.uint32)
