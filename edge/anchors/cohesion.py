"""Where the words of a text change: depth scores. Owns: bags of words, similarity of neighbours. Needs: lines, blocks, numpy.
Never: form; a heading is no word here.

TextTiling (Hearst 1997, "Segmenting Text into Multi-paragraph Subtopic Passages", sections 4 and 5): at each gap the words of
both sides are compared by the cosine of their counts; the depth of a gap is how far similarity rises to the next peak on its
left, plus the same on its right; gaps deeper than mean - factor * standard deviation are topic breaks. Two things differ:
gaps are those between paragraphs (between sentences of a line without end), and instead of a list of stop words a word weighs
the logarithm of (paragraphs / paragraphs that have it), which is right in any language. Words are cut to their first letters,
and hashed; scripts without spaces count pairs of characters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edge.anchors.blocks import Blocks
from edge.anchors.found import merged
from edge.anchors.lines import DIGIT, LETTER, LOWER, MARK, UPPER, Lines, look_up
from edge.anchors.sentences import LONG_LINE, sentence_begins

_BUCKETS = 512
_STEM = 6  # letters of a word that count
_MOST_PARAGRAPHS = 6000  # that are compared; of more, neighbours are joined
_CHUNK = 2048  # paragraphs at once: what is held stays at some megabytes
_PRIMES = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5, 0x85EBCA77C2B2AE63,
                    0xD6E8FEB86659FD93], np.uint64)  # fmt: skip
_LEAST_DEPTH = 0.05  # below, two cosines differ by chance
_HEADING_LINES = 3  # above a paragraph: they belong to it


@dataclass(frozen=True, slots=True)
class Breaks:
    """Topic breaks, ascending."""

    positions: np.ndarray  # int64, the first character behind the gap
    depths: np.ndarray  # float64, 0 to 4: two rises of a cosine


def find_breaks(lines: Lines, blocks: Blocks, *, depth_words: int, paragraph_words: int, factor: float) -> Breaks:
    """Gaps that are deeper than the others around them and than the cut."""
    nothing = Breaks(np.zeros(0, np.int64), np.zeros(0))
    begins, buckets = _words(lines)
    starts = _paragraphs(lines, blocks)
    if len(begins) < 2 * depth_words or len(starts) < 3:
        return nothing
    before = np.searchsorted(begins, starts)  # words in front of each paragraph
    joined = np.append(True, np.diff(before // max(paragraph_words, len(begins) // _MOST_PARAGRAPHS)) > 0)
    starts, before = starts[joined], before[joined]
    before[0] = 0
    if len(starts) < 3:
        return nothing
    scores = _similarities(buckets, np.append(before, len(begins)), depth_words)
    depths = _depths(scores)
    cut = depths.mean() - factor * depths.std()
    padded = np.pad(depths, 2, constant_values=-1.0)
    highest = np.max([padded[shift : shift + len(depths)] for shift in (0, 1, 3, 4)], axis=0)
    chosen = np.flatnonzero((depths > np.maximum(cut, _LEAST_DEPTH)) & (depths >= highest))
    positions = _with_headings(lines, blocks, starts[1:][chosen])
    positions, order = np.unique(positions, return_index=True)
    return Breaks(positions, depths[chosen][order])


def _words(lines: Lines) -> tuple[np.ndarray, np.ndarray]:
    """Where each word begins (int64 [words]) and its bucket (int64 [words])."""
    classes, codes = lines.classes, lines.codes
    single = classes == LETTER
    cased = (classes == UPPER) | (classes == LOWER) | (classes == DIGIT) | (classes == MARK)
    begin = cased & ~np.append(False, cased[:-1])[: len(cased)] | single
    begins = np.flatnonzero(begin)
    if not len(begins):
        return begins, begins
    small = look_up(codes, _small_letter, np.uint32).astype(np.uint64)
    place = np.arange(len(codes)) - np.maximum.accumulate(np.where(begin, np.arange(len(codes)), 0))
    # A character of a script without spaces counts together with the next one.
    second = np.append(single[1:] & single[:-1], False)
    pair = np.where(second, np.append(small[1:], 0), 0).astype(np.uint64) * _PRIMES[1]
    values = np.where((cased | single) & (place < _STEM), small * _PRIMES[np.minimum(place, _STEM - 1)] + pair, 0)
    hashes = np.add.reduceat(values.astype(np.uint64), begins)
    hashes ^= hashes >> np.uint64(29)
    return begins, (hashes * _PRIMES[0] >> np.uint64(64 - 9)).astype(np.int64)


def _paragraphs(lines: Lines, blocks: Blocks) -> np.ndarray:
    """First characters of paragraphs; of sentences, in lines without end."""
    opens = blocks.opens if blocks.spaced else np.ones(len(blocks.lines), bool)
    inside = sentence_begins(lines, blocks.lines[blocks.lengths > LONG_LINE])
    return merged(lines.firsts[blocks.lines[opens]], inside)


def _similarities(buckets: np.ndarray, borders: np.ndarray, depth_words: int) -> np.ndarray:
    """float64 [paragraphs - 1]: at each gap, the cosine of the words in front and behind. `borders`: words before each."""
    count = len(borders) - 1
    owner = np.repeat(np.arange(count), np.diff(borders))
    with_bucket = np.zeros(_BUCKETS)
    for first in range(0, count, _CHUNK):
        with_bucket += (_bags(buckets, borders, owner, first, min(first + _CHUNK, count)) > 0).sum(axis=0)
    weights = (np.log((count + 1) / (with_bucket + 0.5)).clip(0.0) ** 2).astype(np.float32)
    gaps = np.arange(1, count)
    lefts = np.minimum(np.searchsorted(borders, borders[gaps] - depth_words, side="right") - 1, gaps - 1).clip(0)
    rights = np.maximum(np.searchsorted(borders, borders[gaps] + depth_words), gaps + 1).clip(None, count)
    scores = np.zeros(len(gaps))
    for first in range(0, len(gaps), _CHUNK):
        part = slice(first, min(first + _CHUNK, len(gaps)))
        low, high = int(lefts[part].min()), int(rights[part].max())
        sums = np.zeros((high - low + 1, _BUCKETS), np.float32)  # counts, so exact
        np.cumsum(_bags(buckets, borders, owner, low, high), axis=0, out=sums[1:])
        left = sums[gaps[part] - low] - sums[lefts[part] - low]
        right = sums[rights[part] - low] - sums[gaps[part] - low]
        weighted = left * weights
        norms = np.sqrt((weighted * left).sum(axis=1) * (right * right * weights).sum(axis=1))
        scores[part] = (weighted * right).sum(axis=1) / np.maximum(norms, 1e-9)
    return scores


def _bags(buckets: np.ndarray, borders: np.ndarray, owner: np.ndarray, first: int, end: int) -> np.ndarray:
    """Counts [end - first, buckets] of paragraphs `first` to `end`."""
    words = slice(borders[first], borders[end])
    cells = (owner[words] - first) * _BUCKETS + buckets[words]
    return np.bincount(cells, minlength=(end - first) * _BUCKETS).reshape(end - first, _BUCKETS)


def _depths(scores: np.ndarray) -> np.ndarray:
    """How deep each gap lies below the peaks on its two sides."""
    depths = np.zeros(len(scores))
    for values, view in ((scores, depths), (scores[::-1], depths[::-1])):
        peak, last = -1.0, -1.0
        rises = []
        for score in values.tolist():
            peak = peak if last >= score and peak >= 0 else score
            last = score
            rises.append(peak - score)
        view += rises
    return depths


def _with_headings(lines: Lines, blocks: Blocks, positions: np.ndarray) -> np.ndarray:
    """Each position moved up over the lines that stand alone above it: a heading belongs to what it heads."""
    index = np.searchsorted(lines.firsts[blocks.lines], positions)
    at_line = lines.firsts[blocks.lines[np.minimum(index, len(blocks.lines) - 1)]] == positions
    for _ in range(_HEADING_LINES):
        above = np.maximum(index - 1, 0)
        moves = at_line & (index > 0) & ~blocks.body[above] & ~blocks.bullet[above] & blocks.opens[above] & blocks.closes[above]
        index = np.where(moves, above, index)
    return np.where(at_line, lines.firsts[blocks.lines[np.minimum(index, len(blocks.lines) - 1)]], positions)


def _small_letter(char: str) -> int:
    """The code of its small letter, where that is one character."""
    small = char.lower()
    return ord(small) if len(small) == 1 else ord(char)
