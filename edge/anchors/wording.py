"""Headings by their words: Section 3.2, Anhang A, 第三条, Introduction. Owns: where a phrase heads something rather than stands
in a sentence. Needs: lines, blocks, phrases. Never: the phrases themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edge.anchors.blocks import Blocks
from edge.anchors.found import Found, found_places
from edge.anchors.lines import DIGIT, LOWER, SPACE, Lines
from edge.anchors.phrases import Phrase, PhraseMatch, Phrases, number_of
from edge.anchors.sentences import LONG_LINE, sentence_begins

_DECORATION, _DECORATION_CHARS = "*_#>[【（( ", 8  # of headings, in front of their words
_DIGITS, _LETTERS, _ROMANS, _NUMBER_CHARS, _SPACES = "0123456789.)、:", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "IVXLC", 10, 4
_DENSE_CHARS = 25  # a text with more such lines than one in so many characters is a table
_TITLE_CHARS = 120  # of a line that is a heading as a whole
_HEADING_CHARS = 90  # of a heading that a paragraph follows on the same line
_SEPARATORS = ".:：—–-)］]】*_、"  # behind the number of a heading that goes on


@dataclass(frozen=True, slots=True)
class Wording:
    found: Found
    phrases: tuple[Phrase, ...]  # of each place
    captions: np.ndarray  # int64: first characters of lines that name a figure or a table


def find_worded(lines: Lines, blocks: Blocks, phrases: Phrases, contents: np.ndarray) -> Wording:
    """Phrases at the beginning of lines; in lines without end also of sentences, where their numbers count on.

    `contents`: first characters of lines of a table of contents."""
    text = lines.text
    at: list[tuple[int, int, Phrase]] = []
    firsts, lasts = lines.firsts[blocks.lines], lines.lasts[blocks.lines]
    # Not of a bullet's item, and not in the middle of a paragraph.
    heads = (
        ~blocks.bullet
        & ~blocks.tabular
        & ~np.isin(firsts, contents, kind="sort")
        & (blocks.opens | _before(blocks.ended, True) | ~_before(blocks.body, False))
    )
    decorated = np.where(heads, lines.skip(firsts, _DECORATION, _DECORATION_CHARS), -1)
    numbered = _skip_number(lines, decorated)
    headed: set[int] = set()
    for begins in (decorated, np.where(numbered > decorated, numbered, -1)):
        candidates = _candidates(lines, begins, phrases)
        if len(candidates) * _DENSE_CHARS > len(lines.codes) + _DENSE_CHARS * 16:
            continue
        for index in candidates.tolist():
            match = phrases.match(text, int(begins[index])) if index not in headed else None
            if match is not None and _heads_line(lines, blocks, index, match):
                headed.add(index)
                end = int(lasts[index]) if blocks.lengths[index] <= _TITLE_CHARS else match.end
                at.append((int(firsts[index]), end, match.phrase))
    inside = sentence_begins(lines, blocks.lines[blocks.lengths > LONG_LINE])
    matches = [
        match
        for begin in inside[_candidates(lines, inside, phrases)].tolist()
        if (match := phrases.match(text, begin)) is not None
    ]
    at += [(match.begin, match.end, match.phrase) for match in _counting(text, matches)]
    captions = np.array(sorted(begin for begin, _, phrase in at if not phrase.level), np.int64)
    at = [place for place in at if place[2].level]
    at.sort(key=lambda place: place[0])
    found = found_places([begin for begin, _, _ in at], [end for _, end, _ in at], [phrase.level for _, _, phrase in at])
    return Wording(found, tuple(phrase for _, _, phrase in at), captions)


def _candidates(lines: Lines, begins: np.ndarray, phrases: Phrases) -> np.ndarray:
    """Which of `begins` show the first two characters of some phrase."""
    first, second = lines.code_at(begins).astype(np.int64), lines.code_at(begins + 1).astype(np.int64)
    pairs = [ord(begin[0]) << 32 | ord(begin[1]) for begin in phrases.begins if len(begin) == 2]
    singles = [ord(begin) for begin in phrases.begins if len(begin) == 1]
    may = np.isin(first << 32 | second, np.array(pairs, np.int64), kind="sort") | np.isin(first, np.array(singles, np.int64))
    if phrases.begin_with_number and len(lines.codes):
        may |= lines.classes[np.minimum(begins, len(lines.codes) - 1)] == DIGIT
    return np.flatnonzero(may)


def _skip_number(lines: Lines, begins: np.ndarray) -> np.ndarray:
    """Behind a number and the spaces behind it: 3.1, IV., B). Where there is none, where it was."""
    behind = lines.skip(begins, _DIGITS, _NUMBER_CHARS)
    second = lines.code_at(begins + 1)
    letter = np.isin(second, [ord(char) for char in ".)"]) & np.isin(lines.code_at(begins), [ord(char) for char in _LETTERS])
    behind = np.where(letter, begins + 2, behind)
    roman = lines.skip(begins, _ROMANS, _NUMBER_CHARS)
    behind = np.where((roman > begins) & np.isin(lines.code_at(roman), [ord(char) for char in ".)"]), roman + 1, behind)
    spaced = lines.skip(behind, " \t\xa0", _SPACES)
    return np.where(spaced > behind, spaced, begins)


def _heads_line(lines: Lines, blocks: Blocks, index: int, match: PhraseMatch) -> bool:
    """Whether the line is a heading, rather than one of a paragraph that happens to begin with the phrase."""
    line = int(blocks.lines[index])
    rest = lines.text[match.end : min(int(lines.lasts[line]), match.end + _TITLE_CHARS)].lstrip(" \t\xa0")
    if not match.phrase.numbered:
        return lines.classes[match.begin] != LOWER
    if not rest or rest[0] in _SEPARATORS:
        return True
    if blocks.lengths[index] > _TITLE_CHARS or lines.classes[match.end + _spaces(lines, match.end)] == LOWER:
        # A Chinese article has its text behind its number, on the same line.
        return match.phrase.language == "Chinese" and bool(blocks.opens[index])
    return not blocks.ended[index] or bool(
        blocks.closes[index] and blocks.opens[index] and blocks.lengths[index] < _HEADING_CHARS
    )


def _before(values: np.ndarray, first: bool) -> np.ndarray:
    """Of each entry that of the one in front."""
    return np.append(first, values[:-1])[: len(values)]


def _spaces(lines: Lines, begin: int) -> int:
    count = 0
    while begin + count < len(lines.classes) - 1 and lines.classes[begin + count] == SPACE:
        count += 1
    return count


def _counting(text: str, matches: Sequence[PhraseMatch]) -> list[PhraseMatch]:
    """Those whose number is one more than an earlier one of the same phrase, or one less than a later one."""
    seen: dict[tuple[str, tuple[int, ...]], int] = {}
    kept: set[int] = set()
    for index, match in enumerate(matches):
        parts = number_of(text, match)
        if parts is None:
            continue
        before = seen.get((match.phrase.text, (*parts[:-1], parts[-1] - 1)))
        if before is not None:
            kept |= {before, index}
        seen[match.phrase.text, parts] = index
    return [matches[index] for index in sorted(kept)]
