"""Which lines stand alone, which make paragraphs, which are items of lists. Owns: Blocks. Needs: lines. Never: headings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edge.anchors.lines import LETTER, LOWER, SPACE, UPPER, Lines

_BULLETS = "-*+•·‣▪◦●–—"
_SENTENCE_ENDS = ".!?。！？…؟۔:：;；"
_QUESTIONS, _CALLS = "?？؟", "?？؟!！…"
_LONG = 80  # characters of a line that is text, not a title
_SENTENCE_WORDS, _SENTENCE_CHARS, _SENTENCE_LETTERS = 3, 12, 6  # of what ends as one; the last in scripts of Chinese
_NUMBER_CHARS = 8  # of a number in front of a title, and the tab behind it
_LONG_LETTERS = 40  # the same in scripts of Chinese


@dataclass(frozen=True, slots=True)
class Blocks:
    """Lines with text of their own (no code, no furniture, not blank), in order; arrays have one entry for each."""

    lines: np.ndarray  # int64, the number of the line
    opens: np.ndarray  # bool: above it the text begins, or a blank line or code stands
    closes: np.ndarray  # bool: the same below it
    lengths: np.ndarray  # int64, visible characters from the first to the last
    ideographic: np.ndarray  # bool: most of it is of a script without spaces
    bullet: np.ndarray  # bool: begins with the mark of a list
    ended: np.ndarray  # bool: its last character ends a sentence or announces something
    body: np.ndarray  # bool: text of a paragraph
    told: np.ndarray  # bool: a statement, rather than a question or words without an end
    tabular: np.ndarray  # bool: has a tab behind its beginning: a row of a table
    words: np.ndarray  # int64, runs of visible characters
    large_words: np.ndarray  # int64, those that begin with a large letter

    @property
    def spaced(self) -> bool:
        """Whether blank lines set blocks apart in this text."""
        return bool(self.opens.mean() > 0.2) if len(self.lines) > 1 else True


def find_blocks(lines: Lines, hidden: np.ndarray) -> Blocks:
    """`hidden` (bool [lines]): code and furniture."""
    own = np.flatnonzero(~lines.blank & ~hidden)
    lengths = lines.lengths[own]
    gap_above = np.diff(own, prepend=-2) > 1
    gap_below = np.diff(own, append=len(hidden) + 1) > 1
    classes = lines.classes
    letters = lines.counts(classes == LETTER)[own]
    ideographic = letters * 2 > lengths
    word_begins = (classes != SPACE) & np.append(True, classes[:-1] == SPACE)[: len(classes)]
    words = lines.counts(word_begins)[own]
    large_words = lines.counts(word_begins & (classes == UPPER))[own]
    tab = lines.codes == 0x09
    tabs = np.concatenate(([0], np.cumsum(tab, dtype=np.int64)))
    behind_number = np.minimum(lines.firsts[own] + _NUMBER_CHARS, lines.lasts[own])
    tabular = tabs[lines.lasts[own]] > tabs[behind_number]
    cased = lines.counts((classes == UPPER) | (classes == LOWER))[own]
    first, second = lines.code_at(lines.firsts[own]), lines.code_at(lines.firsts[own] + 1)
    spaced_second = (second == 0x20) | (second == 0x09) | (second == 0xA0) | (second == 0x3000)
    bullet = np.isin(first, [ord(char) for char in _BULLETS]) & spaced_second
    last = lines.code_at(lines.lasts[own] - 1)
    ended = np.isin(last, [ord(char) for char in _SENTENCE_ENDS])
    long = lengths >= np.where(ideographic, _LONG_LETTERS, _LONG)
    # A paragraph: a long line, several lines together, or a sentence.
    told = ended & ~np.isin(last, [ord(char) for char in _CALLS])
    # A question by itself may be a heading, or one of many in a table of contents.
    sentence = (
        ended
        & ~np.isin(last, [ord(char) for char in _QUESTIONS])
        & ((words >= _SENTENCE_WORDS) & (cased + letters > _SENTENCE_CHARS) | (letters >= _SENTENCE_LETTERS))
    )
    body = ~bullet & (long | (~gap_below & ~_next(gap_below & gap_above)) | sentence) if len(own) else bullet
    return Blocks(own, gap_above, gap_below, lengths, ideographic, bullet, ended, body, told, tabular, words, large_words)


def _next(values: np.ndarray) -> np.ndarray:
    """Of each entry that of the following one; False behind the last."""
    return np.append(values[1:], False)
