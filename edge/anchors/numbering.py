"""Numbered and lettered headings: 2.1, IV., C., 三、. Owns: which numbers go on where an earlier one ended. Needs: lines,
blocks, numerals. Never: words in front of a number (wording.py).

A number alone says little: lists, dates and versions have some too. A heading's number follows another heading's (2.1 after 2,
2.2 after 2.1), text stands between the two, and a list of numbers without any (contents, items) is none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from edge.anchors.blocks import Blocks
from edge.anchors.found import NOTHING, Found, found_places, merged
from edge.anchors.lines import DIGIT, Lines
from edge.anchors.numerals import chinese_value, letter_value, roman_value

_HEAD = re.compile(
    r"[*_]{0,2}(?:"
    r"(?P<decimal>\d{1,4}(?:\.\d{1,4}){0,7})(?P<close>[.):、．]?)(?=[ \t\xa0\u3000]|[^\W\d_])"
    r"|(?P<lettered>[A-Z](?:\.\d{1,3}){1,6})\.?(?=[ \t\xa0\u3000])"
    r"|(?P<open>[(（]?)(?:(?P<roman>[IVXLC]{1,8}|[ivxlc]{1,8})|(?P<letter>[A-Za-z])|(?P<digits>\d{1,3})"
    r"|(?P<chinese>[一二三四五六七八九十]{1,4}))(?P<end>[.)）、．])(?=[ \t\xa0\u3000]|[^\x00-\x7f])"
    r")"
)
_OPENS = "(（*_一二三四五六七八九十"
_DENSE_RUN = 4  # numbered lines without text between them: contents, or items
_CONTENTS_RUN = 2  # such lines whose numbers come again
_DENSE_CHARS = 40  # a text with more numbered lines than one in so many characters is a list or a table
_RESTARTS = 3  # a numbering of one level that begins anew so often numbers lists
_MOST_CHARS = 120  # of a numbered title; longer lines are clauses
_SENTENCE_WORDS, _LARGE_SHARE = 4, 0.6  # of a title that ends with a full stop: few words, or most of them large
_NOT_LAST = ",;:，；：、"
_DEEPEST_HEADING = 6
_TITLE_SPACES = 8  # characters behind a number in which its title begins


@dataclass(frozen=True, slots=True)
class _Number:
    style: str
    parts: tuple[int, ...]
    is_large: bool  # what follows begins with a large letter, or one of a script without case


@dataclass(frozen=True, slots=True)
class Numbering:
    found: Found
    items: np.ndarray  # int64: first characters of numbered lines that are no headings
    contents: np.ndarray  # int64: and of those among them that stand one below the other, as in a table of contents


def find_numbered(lines: Lines, blocks: Blocks) -> Numbering:
    """Headings by number, and the numbered lines that are none."""
    places = _candidates(lines, blocks)
    firsts = lines.firsts[blocks.lines[places]]
    dense = _in_dense_run(blocks, places)
    kept = places[~dense]
    if len(kept) * _DENSE_CHARS > len(lines.codes) + _DENSE_CHARS * 16:
        return Numbering(NOTHING, firsts, firsts[dense])
    parsed = [_parse(lines.text, int(begin)) for begin in lines.firsts[blocks.lines[kept]]]
    listed = _in_contents(kept, parsed, np.isin(kept - 1, places[dense]))
    for index in np.flatnonzero(np.isin(kept - 1, places[dense])).tolist():  # the last line of contents, which text follows
        above = _parse(lines.text, int(lines.firsts[blocks.lines[kept[index] - 1]]))
        listed[index] |= bool(above and parsed[index]) and above[0].parts < parsed[index][0].parts
    chosen = _chosen(parsed, _can_head(lines, blocks, kept, parsed) & ~listed)
    positions, ends, levels = [], [], []
    for index, number in chosen:
        line = blocks.lines[kept[index]]
        positions.append(int(lines.firsts[line]))
        ends.append(min(int(lines.lasts[line]), int(lines.firsts[line]) + _MOST_CHARS))
        levels.append(_level(number))
    found = found_places(positions, ends, levels)
    contents = merged(firsts[dense], lines.firsts[blocks.lines[kept[listed]]])
    return Numbering(found, firsts[~np.isin(firsts, found.positions, kind="sort")], contents)


def _candidates(lines: Lines, blocks: Blocks) -> np.ndarray:
    """Indices into `blocks` of lines that may begin with a number."""
    first = lines.firsts[blocks.lines]
    code, code_2 = lines.code_at(first), lines.code_at(first + 1)
    closed = np.isin(code_2, [ord(char) for char in ".)）"])
    is_letter = (code >= 0x41) & (code <= 0x5A) | (code >= 0x61) & (code <= 0x7A)
    roman = [ord(char) for char in "ivxlcIVXLC"]
    may = np.isin(code, [ord(char) for char in _OPENS]) | (is_letter & closed) | (np.isin(code, roman) & np.isin(code_2, roman))
    if len(lines.codes):
        may |= lines.classes[np.minimum(first, len(lines.codes) - 1)] == DIGIT
    return np.flatnonzero(may)


def _in_dense_run(blocks: Blocks, places: np.ndarray) -> np.ndarray:
    """Whether a candidate stands in a run of short ones with no other line between, and no text below it."""
    short = (blocks.lengths[places] <= _MOST_CHARS) & ~blocks.told[places]
    starts_run = np.append(True, (np.diff(places) > 1) | ~short[1:] | ~short[:-1])[: len(places)]
    run = np.cumsum(starts_run) - 1
    if not len(places):
        return short
    below = np.minimum(places + 1, len(blocks.lines) - 1)
    headed = blocks.body[below] & np.append(np.diff(places) > 1, True)
    return (np.bincount(run)[run] >= _DENSE_RUN) & short & ~headed


def _in_contents(places: np.ndarray, parsed: list[tuple[_Number, ...]], below_dense: np.ndarray) -> np.ndarray:
    """bool [places]: one of several lines together whose numbers come again further down, above their text; `below_dense`: the
    line above is of a run that was dense."""
    last = {(number.style, number.parts): index for index, numbers in enumerate(parsed) for number in numbers}
    again = np.array(
        [any(last[number.style, number.parts] > i for number in numbers) for i, numbers in enumerate(parsed)], bool
    )
    if not len(places):
        return again
    run = np.cumsum(np.append(True, np.diff(places) > 1)) - 1
    return again & ((np.bincount(run, again)[run] >= _CONTENTS_RUN) | below_dense)


def _parse(text: str, begin: int) -> tuple[_Number, ...]:
    """The readings of what a line begins with: none, one, or two (I. is a letter, or one)."""
    match = _HEAD.match(text, begin)
    if match is None:
        return ()
    title = text[match.end() : match.end() + _TITLE_SPACES].lstrip(" \t\xa0\u3000*_\"'«“„¿¡(（「《【`")
    is_large = bool(title) and not title[0].islower()
    return tuple(_Number(style, parts, is_large) for style, parts in _readings(match))


def _readings(match: re.Match[str]) -> list[tuple[str, tuple[int, ...]]]:
    """Style and parts."""
    if decimal := match["decimal"]:
        parts = tuple(map(int, decimal.split(".")))
        return [("decimal" if len(parts) > 1 else f"decimal{match['close']}", parts)]
    if lettered := match["lettered"]:
        head, *rest = lettered.split(".")
        return [("lettered", (letter_value(head), *map(int, rest)))]
    style = f"{match['open']}{match['end']}"
    if digits := match["digits"]:
        return [(f"digits{style}", (int(digits),))]
    if chinese := match["chinese"]:
        value = chinese_value(chinese)
        return [] if value is None else [(f"chinese{style}", (value,))]
    readings: list[tuple[str, tuple[int, ...]]] = []
    if roman := match["roman"]:
        value = roman_value(roman)
        if value is not None:
            readings.append((f"{'roman' if roman.islower() else 'Roman'}{style}", (value,)))
    letter = match["letter"] or (match["roman"] if len(match["roman"]) == 1 else None)
    if letter:
        readings.append((f"{'letter' if letter.islower() else 'Letter'}{style}", (letter_value(letter),)))
    return readings


def _can_head(lines: Lines, blocks: Blocks, places: np.ndarray, parsed: list[tuple[_Number, ...]]) -> np.ndarray:
    """Whether a line looks like a heading or a clause of its number's kind."""
    last = np.isin(lines.code_at(lines.lasts[blocks.lines[places]] - 1), [ord(char) for char in _NOT_LAST])
    apart = blocks.opens[places] & blocks.closes[places]
    above_ended = np.append(True, blocks.ended[:-1])[places] | blocks.opens[places]
    words = np.maximum(blocks.words[places] - 1, 1)  # without the number
    # "1. Source Code." is a title, "1. Copy the file." an item.
    as_title = apart & ((words <= _SENTENCE_WORDS) | (blocks.large_words[places] >= _LARGE_SHARE * words))
    is_title = (blocks.lengths[places] <= _MOST_CHARS) & ~last & (~blocks.ended[places] | as_title)
    is_deep = np.array([bool(numbers) and len(numbers[0].parts) > 1 for numbers in parsed], bool)
    is_large = np.array([bool(numbers) and numbers[0].is_large for numbers in parsed], bool)
    can: np.ndarray = ((is_title & is_large) | is_deep) & above_ended & ~blocks.tabular[places]
    return can


def _chosen(parsed: list[tuple[_Number, ...]], can_head: np.ndarray) -> list[tuple[int, _Number]]:
    """Candidates whose number follows another's or is followed by one. Each is (index, the reading that links)."""
    seen: dict[tuple[str, tuple[int, ...]], tuple[int, _Number]] = {}
    restarts: dict[str, int] = {}
    linked: dict[int, _Number] = {}
    parents: set[int] = set()  # 3., where 3.1 comes behind it
    for index, numbers in enumerate(parsed):
        if not can_head[index]:
            continue
        for number in numbers:
            if number.parts == (1,):
                restarts[number.style] = restarts.get(number.style, 0) + 1
            earlier = next((seen[before] for before in _predecessors(number) if before in seen), None)
            if earlier is not None:
                linked.setdefault(index, number)
                linked.setdefault(*earlier)
                if len(earlier[1].parts) < len(number.parts):
                    parents.add(earlier[0])
            seen[number.style, number.parts] = index, number
    return [
        (index, number)
        for index, number in sorted(linked.items())
        if len(number.parts) > 1 or index in parents or restarts.get(number.style, 0) < _RESTARTS
    ]


def _predecessors(number: _Number) -> list[tuple[str, tuple[int, ...]]]:
    """What stands in front of such a number: the one before it, or for the first of its level the one above."""
    *head, last = number.parts
    before = [(number.style, (*head, last - 1))] if last > 0 else []
    if len(head) == 1 and last <= 1:
        before += [(f"decimal{close}", tuple(head)) for close in (".", "", ")", ":")] + [("Letter.", tuple(head))]
    elif head and last <= 1:
        before.append((number.style, tuple(head)))
    return before


def _level(number: _Number) -> int:
    if len(number.parts) > 1 or number.style.startswith("decimal"):
        return min(len(number.parts), _DEEPEST_HEADING)
    if number.style.startswith(("Roman", "chinese、", "chinese.", "chinese．")):
        return 1
    return 2 if number.style.startswith(("Letter", "chinese")) else 4
