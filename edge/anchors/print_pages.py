"""Printed pages in text that came out of a PDF or a man page: form feeds, and headers and footers that repeat. Owns: where a
page begins, which lines are furniture. Needs: lines. Never: pages of KV memory."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from edge.anchors.found import NOTHING, Found, found_places, merged
from edge.anchors.lines import Lines
from edge.anchors.signals import DEEPEST

_FORM_FEED = 0x0C
_EDGE_LINES = 2  # lines at the top and the bottom of a page that may be furniture
_REPEATS = 3  # pages that show the same line; and at least half of all
_HEADER_CHARS = 120
_WORD_CHARS = 30  # with a word for page in so few characters on average, it means something else
_PAGE_CHARS = 100  # of pages with less text on average, none is furniture
_EVEN_GAPS = 0.35  # standard deviation of the distances of page headers, in means: pages are about equally long
_NUMBER = re.compile(r"\d+")
_PAGE_NUMBER = re.compile(
    r"[-–—\[(|]?[ \t]{0,4}(?:page|p\.|seite|página|pág\.|第)?[ \t]{0,4}\d{1,5}"
    r"(?:[ \t]{0,2}(?:/|of|von|sur|de|页)?[ \t]{0,2}\d{0,5})[ \t]{0,4}[-–—\])|页]?",
    re.I,
)
_LABELS = ("page", "Page", "PAGE", "Seite", "SEITE", "página", "Página", "pág.", "Pág.", "第")
_LABELLED = re.compile(r"(?:page|seite|página|pág\.)[ \t]{1,3}(\d{1,5})\b|第[ \t]?(\d{1,5})[ \t]?页", re.I)


@dataclass(frozen=True, slots=True)
class PrintPages:
    found: Found
    furniture: np.ndarray  # bool [lines]: headers, footers, page numbers


def find_print_pages(lines: Lines) -> PrintPages:
    """Pages by form feeds; without those, by lines that repeat at even distances with a page number that counts on."""
    furniture = np.zeros(len(lines.starts), bool)
    feeds = np.flatnonzero(lines.codes == _FORM_FEED)
    if len(feeds):
        borders = lines.at(feeds + 1)
        if len(feeds) * _PAGE_CHARS < len(lines.codes):
            _mark_repeats(lines, np.concatenate(([0], borders, [len(furniture)])), furniture)
        begins = borders
    else:
        begins = _numbered_pages(lines, furniture)
    visible = np.flatnonzero(~lines.blank & ~furniture)
    place = np.searchsorted(visible, begins)
    body = merged(visible[place[place < len(visible)]])
    if not len(body):
        return PrintPages(NOTHING, furniture)
    at = lines.firsts[body]
    return PrintPages(found_places(at, np.minimum(lines.lasts[body], at + 80), np.full(len(at), DEEPEST)), furniture)


def _mark_repeats(lines: Lines, borders: np.ndarray, furniture: np.ndarray) -> None:
    """Lines at the edges of pages that look the same, numbers apart, on several pages."""
    visible = np.flatnonzero(~lines.blank)
    place = np.searchsorted(visible, borders)
    edges: dict[str, set[int]] = {}
    for at in place.tolist():
        for near in range(max(at - _EDGE_LINES, 0), min(at + _EDGE_LINES, len(visible))):
            line = int(visible[near])
            begin, end = int(lines.firsts[line]), int(lines.lasts[line])
            if end - begin <= _HEADER_CHARS:
                shape = ("below " if near >= at else "above ") + _NUMBER.sub("#", lines.text[begin:end])
                edges.setdefault(shape, set()).add(line)
    for shape, found in edges.items():
        is_number = _PAGE_NUMBER.fullmatch(shape[6:].replace("#", "1")) is not None
        if len(found) >= (2 if is_number else max(_REPEATS, len(borders) // 2)):
            furniture[list(found)] = True


def _numbered_pages(lines: Lines, furniture: np.ndarray) -> np.ndarray:
    """Lines below headers such as "Policy Manual, page 12": the same words, the number one more, about equally far apart."""
    shapes: dict[str, list[tuple[int, int]]] = {}
    begins = _labels(lines.text)
    matches = [match for begin in begins if (match := _LABELLED.match(lines.text, begin)) is not None]
    numbers = lines.at(np.array([match.start() for match in matches], np.int64)).tolist()
    for match, line in zip(matches, numbers, strict=True):
        begin, end = int(lines.firsts[line]), int(lines.lasts[line])
        if end - begin <= _HEADER_CHARS:
            shape = _NUMBER.sub("#", lines.text[begin:end])
            shapes.setdefault(shape, []).append((line, int(match[1] or match[2])))
    bodies: list[int] = []
    for found in shapes.values():
        places, counted = np.array(found, np.int64).T
        gaps = np.diff(places)
        if (
            len(found) > _REPEATS
            and (np.diff(counted) == 1).all()
            and gaps.std() <= _EVEN_GAPS * gaps.mean()
            and gaps.min() > 5
        ):
            furniture[places] = True
            bodies += (places + 1).tolist()
    return np.array(sorted(bodies), np.int64)


def _labels(text: str) -> list[int]:
    """Where a word for page stands; none in a text that has more of them than pages."""
    begins: list[int] = []
    for word in _LABELS:
        if text.count(word) * _WORD_CHARS > len(text):
            return []
        place = text.find(word)
        while place >= 0:
            begins.append(place)
            place = text.find(word, place + 1)
    return sorted(begins)
