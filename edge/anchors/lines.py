"""A text as lines and classes of characters, in arrays. Owns: where lines begin and end, what a character is. Needs: numpy.
Never: what a line means.

A megabyte may be one line or a million of them: whoever looks at lines asks these arrays, and loops over the few that it wants.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

OTHER, SPACE, UPPER, LOWER, LETTER, DIGIT, MARK = range(7)  # classes; LETTER: of scripts without case
_BREAKS = (0x0A, 0x0B, 0x0C, 0x0D, 0x85, 0x2028, 0x2029)
_CLASSES = {"Lu": UPPER, "Lt": UPPER, "Ll": LOWER, "Lo": LETTER, "Lm": LETTER, "Nd": DIGIT, "Zs": SPACE, "Mn": MARK, "Mc": MARK}
_BLANK = frozenset(
    (0x09, 0x1C, 0x1D, 0x1E, 0x1F, 0x200B, 0xFEFF, *_BREAKS)
)  # that a reader does not see, whatever Unicode calls them
_PLANE = 0x10000
PAD = 16  # characters around the text that may be asked for


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of a text; all positions are characters. A line without visible characters is blank."""

    text: str  # with LF for every line break, as long as the text itself: what expressions are matched against
    codes: np.ndarray  # uint32 [characters]
    padded: np.ndarray  # uint32 [characters + PAD]: `codes`, and zeros behind
    classes: np.ndarray  # uint8 [characters]
    starts: np.ndarray  # int64 [lines]
    ends: np.ndarray  # int64 [lines], behind the last character; the line break is outside
    firsts: np.ndarray  # int64 [lines], the first visible character; of a blank line its end
    lasts: np.ndarray  # int64 [lines], behind the last visible character; of a blank line its start

    @property
    def blank(self) -> np.ndarray:
        """bool [lines]."""
        return self.firsts >= self.ends

    @property
    def lengths(self) -> np.ndarray:
        """int64 [lines], from the first visible character to the last."""
        return np.maximum(self.lasts - self.firsts, 0)

    def at(self, positions: np.ndarray) -> np.ndarray:
        """The lines that hold these characters."""
        return np.searchsorted(self.starts, positions, side="right") - 1

    def counts(self, wanted: np.ndarray) -> np.ndarray:
        """int64 [lines]: how many of a line's characters are `wanted` (bool [characters])."""
        sums = np.zeros(len(wanted) + 1, np.int32)  # texts are shorter than 2 ** 31
        np.cumsum(wanted, dtype=np.int32, out=sums[1:])
        return (sums[self.ends] - sums[self.starts]).astype(np.int64)

    def code_at(self, positions: np.ndarray) -> np.ndarray:
        """uint32 [positions]: the characters there; 0 up to PAD characters outside of the text, on both sides."""
        codes: np.ndarray = self.padded[positions]  # a negative position counts from the end, where the zeros are
        return codes

    def skip(self, begins: np.ndarray, chars: str, most: int) -> np.ndarray:
        """`begins`, each moved behind at most so many of these characters."""
        table = np.zeros(_PLANE + 1, bool)
        table[[ord(char) for char in chars]] = True
        begins = begins.copy()
        moving = np.ones(len(begins), bool)
        for _ in range(most):
            moving &= table[np.minimum(self.code_at(begins), _PLANE)]
            if not moving.any():
                break
            begins += moving
        return begins


def split_lines(text: str) -> Lines:
    """`text` in lines, whichever line breaks it uses: LF, CR LF, CR, form feed, NEL, U+2028, U+2029."""
    padded = np.frombuffer(text.encode("utf-32-le", "surrogatepass") + bytes(4 * PAD), np.uint32)
    codes = padded[: len(text)]
    classes = character_classes(codes)
    breaks = np.flatnonzero(_break_table()[np.minimum(codes, _PLANE)])
    # The line feed of CR LF ends no line of its own.
    paired = np.zeros(len(breaks), bool)
    paired[1:] = (codes[breaks[1:]] == 0x0A) & (codes[breaks[1:] - 1] == 0x0D)
    first_of_pair = np.append(paired[1:], False)[: len(paired)]
    ends = np.append(breaks[~paired], len(codes))
    starts = np.concatenate(([0], breaks[~first_of_pair] + 1))
    visible = np.flatnonzero(classes != SPACE)
    after = np.searchsorted(visible, starts)
    firsts = np.minimum(np.append(visible, len(codes))[after], ends)
    before = np.searchsorted(visible, ends) - 1
    lasts = np.maximum(np.append(visible, -1)[before] + 1, starts)
    return Lines(_with_line_feeds(text), codes, padded, classes, starts, ends, firsts, lasts)


def _with_line_feeds(text: str) -> str:
    """`text` with LF for each line break, at the place of its last character."""
    text = text.replace("\r\n", " \n")
    for code in _BREAKS:
        text = text.replace(chr(code), "\n")
    return text


def character_classes(codes: np.ndarray) -> np.ndarray:
    """uint8 [characters] by Unicode's general category; line breaks and what is not seen count as SPACE."""
    return look_up(codes, _character_class, np.uint8)


def look_up(codes: np.ndarray, value_of: Callable[[str], int], kind: type) -> np.ndarray:
    """value_of(character) of each of `codes` (uint32), as `kind`; called once for each character that there is."""
    low = np.minimum(codes, _PLANE)
    table: np.ndarray = np.zeros(_PLANE + 1, kind)
    present = np.flatnonzero(np.bincount(low, minlength=_PLANE + 1)[:_PLANE])
    table[present] = [value_of(chr(code)) for code in present.tolist()]
    values: np.ndarray = table[low]
    high = codes >= _PLANE
    if high.any():
        distinct, which = np.unique(codes[high], return_inverse=True)
        values[high] = np.array([value_of(chr(code)) for code in distinct.tolist()], kind)[which]
    return values


def _character_class(char: str) -> int:
    return SPACE if ord(char) in _BLANK else _CLASSES.get(unicodedata.category(char), OTHER)


@cache
def _break_table() -> np.ndarray:
    table = np.zeros(_PLANE + 1, bool)
    table[list(_BREAKS)] = True
    return table
