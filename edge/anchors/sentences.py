"""Where sentences begin inside of lines. Owns: the rule. Needs: lines. Never: languages;
a full stop and a space end a sentence."""

from __future__ import annotations

import numpy as np

from edge.anchors.lines import SPACE, Lines

LONG_LINE = 1000  # characters; a shorter line is one paragraph
_TERMINALS = ".!?。！？;；؟۔।"
_OUTSIDE_ASCII = 0x80  # terminals of scripts that put no space behind them


def sentence_begins(lines: Lines, which: np.ndarray) -> np.ndarray:
    """First characters (int64, ascending) of the sentences inside of the lines `which`, but for the first of each line."""
    if not len(which):
        return np.zeros(0, np.int64)
    codes = lines.codes
    change = np.zeros(len(codes) + 2, np.int8)
    np.add.at(change, lines.firsts[which] + 1, 1)
    np.add.at(change, np.maximum(lines.lasts[which], lines.firsts[which] + 1), -1)
    inside = np.cumsum(change[: len(codes)]) > 0
    terminal = np.isin(codes, [ord(char) for char in _TERMINALS])
    space = lines.classes == SPACE
    begins = inside & ~space & ~terminal
    begins[:2] = False
    begins[2:] &= (space[1:-1] & (terminal[:-2] | space[:-2])) | (terminal[1:-1] & (codes[1:-1] >= _OUTSIDE_ASCII))
    return np.flatnonzero(begins)
