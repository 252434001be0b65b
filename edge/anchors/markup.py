"""Headings that a text marks as such: Markdown (ATX, underlined) and HTML; and what is code, where nothing is a heading.
Owns: the rules of both. Needs: lines. Never: text without markup.

Markdown as in CommonMark 0.31 (4.2 ATX headings, 4.3 setext headings, 4.5 fenced code blocks), and the underlines of
reStructuredText, which are as long as their title. Each expression is anchored and bounded, so that the time is that of the
length of the text, whatever it holds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from edge.anchors.found import NOTHING, Found, found_places
from edge.anchors.lines import LETTER, UPPER, Lines

_FENCE = re.compile(r"^[ \t]{0,16}(?:> ?){0,3}[ \t]{0,16}(`{3,}|~{3,})([^\n\r]*)", re.M)
_UNDERLINES = "=-~^\"'+*#.:_"
_LEVELS, _QUOTE_CHARS = 6, 12
_INDENT = 3  # spaces in front of a mark
_RULE = 3  # characters of a line that is no title itself
_TITLE_LINES = 3
_APART_SHARE = 0.6  # of the lines with # of Markdown: so many have a blank line below
_RULES_AT_LEAST = 4  # characters of a reStructuredText underline that is no Markdown
_LINK = re.compile(r"\]\((?:https?:|#|\.{0,2}/|mailto:)")
_HEADING_TAG = re.compile(r"<h([1-6])(?=[\s>])[^<>]{0,1000}>", re.I)
_HEADING_END = re.compile(r"</h[1-6]", re.I)
_DOCUMENT = re.compile(
    r"[\s\ufeff]{0,1000}<(?:!doctype|\?xml|html|head|body|!--|h[1-6]|div|p|section|article|main|ul|ol|table)\b", re.I
)
_OPENINGS = re.compile(r"<(?:!--|(pre|script|style|textarea|title|template)(?=[\s>]))", re.I)
_HEADING_CHARS = 400  # a heading is no longer


@dataclass(frozen=True, slots=True)
class Markup:
    """Headings, and the characters that are none of the text's own."""

    markdown: Found
    html: Found
    fences: np.ndarray  # int64 [blocks], where code blocks begin
    code: np.ndarray  # bool [lines]: of a code block, a comment, a script
    is_html: bool  # the text is HTML, so that its lines mean nothing
    is_marked_up: bool  # its author marks headings


def find_markup(lines: Lines) -> Markup:
    """Headings of Markdown and HTML in one text."""
    text = lines.text
    code = np.zeros(len(lines.starts), bool)
    hidden = _hidden_spans(text) if "<" in text else []
    html = _html_headings(lines, hidden) if "<" in text else NOTHING
    if "<" in text and _DOCUMENT.match(text) is not None and len(html) >= len(_markdown_headings(lines, code)[0]):
        _cover(lines, hidden, code)
        return Markup(NOTHING, html, np.zeros(0, np.int64), code, True, True)
    spans = _fenced_spans(text)
    _cover(lines, [(begin, end) for begin, end in hidden if text.startswith(("<!--", "<pre"), begin)], code)
    _cover(lines, spans, code)
    _cover_front_matter(lines, code)
    markdown, is_markdown = _markdown_headings(lines, code)
    html = _outside(html, lines, code)
    return Markup(markdown, html, np.array([begin for begin, _ in spans], np.int64), code, False, is_markdown or len(html) > 0)


def _fenced_spans(text: str) -> list[tuple[int, int]]:
    """Code between fences; one that is not closed reaches to the end, as CommonMark has it."""
    spans, opened = [], None
    for match in _FENCE.finditer(text) if "```" in text or "~~~" in text else ():
        fence, rest = match[1], match[2]
        if opened is None:
            if "`" not in rest if fence[0] == "`" else rest.strip() or not _underlines(text, match.start(), len(fence)):
                opened = (match.start(), fence)
        elif fence[0] == opened[1][0] and len(fence) >= len(opened[1]) and not rest.strip():
            spans.append((opened[0], match.end()))
            opened = None
    if opened is not None:
        spans.append((opened[0], len(text)))
    return spans


def _underlines(text: str, begin: int, length: int) -> bool:
    """Whether a line of `length` tildes stands below a title: an underline of reStructuredText, and no fence."""
    above = text[text.rfind("\n", 0, max(begin - 1, 0)) + 1 : max(begin - 1, 0)].strip()
    return 0 < len(above) <= length


def _hidden_spans(text: str) -> list[tuple[int, int]]:
    """Comments, and elements that hold no text or text as it is."""
    spans, done = [], 0
    lower = text.lower() if len(text.lower()) == len(text) else text
    missing: set[str] = set()  # ends that are looked for once: many beginnings without an end would each read the rest
    for match in _OPENINGS.finditer(text):
        begin = match.start()
        if begin < done:
            continue
        end = f"</{match[1].lower()}" if match[1] else "-->"
        place = -1 if end in missing else lower.find(end, match.end())
        if place < 0:
            missing.add(end)
            continue
        done = place + len(end)
        spans.append((begin, done))
    return spans


def _cover(lines: Lines, spans: list[tuple[int, int]], code: np.ndarray) -> None:
    """Marks the lines of spans; all but the first of one that begins inside a line."""
    if not spans:
        return
    begins, ends = np.array(spans, np.int64).T
    first, last = lines.at(begins), lines.at(np.maximum(ends - 1, begins))
    first = np.where(lines.firsts[first] == begins, first, np.where(lines.starts[first] == begins, first, first + 1))
    change = np.zeros(len(code) + 1, np.int64)
    keep = first <= last
    np.add.at(change, first[keep], 1)
    np.add.at(change, last[keep] + 1, -1)
    code |= np.cumsum(change[:-1]) > 0


def _cover_front_matter(lines: Lines, code: np.ndarray) -> None:
    """YAML between --- and --- at the beginning, as static site generators have it."""
    text = lines.text
    if not text.startswith(("---\n", "---\r\n", "\ufeff---\n")):
        return
    end = re.compile(r"^---[ \t]{0,80}$", re.M).search(text, 5)
    if end is not None:
        code[: lines.at(np.array([end.start()]))[0] + 1] = True


def _markdown_headings(lines: Lines, code: np.ndarray) -> tuple[Found, bool]:
    """And whether the text is Markdown, or has underlined headings."""
    begins = np.where(lines.firsts - lines.starts <= _INDENT, lines.firsts, lines.ends)
    begins = np.where(lines.code_at(begins) == ord(">"), lines.skip(begins, "> ", _QUOTE_CHARS), begins)
    behind = lines.skip(begins, "#", _LEVELS + 1)
    levels = behind - begins
    follows = lines.code_at(behind)
    is_atx = (levels > 0) & (levels <= _LEVELS) & ((behind >= lines.ends) | (follows == 0x20) | (follows == 0x09))
    is_atx &= ~code & (lines.lasts - begins <= _HEADING_CHARS)
    is_markdown = _is_markdown(lines, is_atx, levels)
    if not is_markdown:
        is_atx &= _stands_as_title(lines, behind)
    line = np.flatnonzero(is_atx)
    positions, ends, levels = begins[line], lines.lasts[line], levels[line]
    taken = np.zeros(len(code), bool)
    taken[line] = True
    under_at, under_ends, under_levels = _underlined(lines, code, taken)
    found = found_places(
        np.concatenate((positions, under_at)), np.concatenate((ends, under_ends)), np.concatenate((levels, under_levels))
    )
    return found, is_markdown or len(under_at) > 0


def _is_markdown(lines: Lines, is_atx: np.ndarray, levels: np.ndarray) -> bool:
    """Whether # means a heading here. In other text it begins comments, mostly with code right below, and the commands of an
    administrator."""
    text = lines.text
    if "```" in text or "~~~" in text or _LINK.search(text) is not None or (is_atx | lines.blank).all():
        return True
    apart = is_atx & np.append(lines.blank[1:] | is_atx[1:], True)
    return bool((levels[is_atx] > 1).any()) and int(apart.sum()) >= _APART_SHARE * int(is_atx.sum())


def _stands_as_title(lines: Lines, behind: np.ndarray) -> np.ndarray:
    """bool [lines]: between blank lines, and large behind the mark."""
    blank = lines.blank
    apart = np.append(True, blank[:-1]) & np.append(blank[1:], True)
    begins = np.minimum(lines.skip(behind, " \t", _QUOTE_CHARS), max(len(lines.codes) - 1, 0))
    return apart & np.isin(lines.classes[begins], (UPPER, LETTER))


def _underlined(lines: Lines, code: np.ndarray, taken: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Titles with a line of one character below; the title is the paragraph above, of three lines at most.

    `taken`: bool [lines], those that are headings already."""
    firsts, lengths = lines.firsts, lines.lengths
    char = lines.code_at(firsts)
    changes = np.concatenate(([0], np.cumsum(lines.codes[1:] != lines.codes[:-1]), [0]))
    visible = ~lines.blank
    uniform = visible & (changes[np.maximum(lines.lasts - 1, 0)] == changes[np.minimum(firsts, len(lines.codes))])
    is_rule = uniform & (firsts - lines.starts <= _INDENT) & np.isin(char, [ord(each) for each in _UNDERLINES]) & ~code
    marked, item = _marks(lines, char)
    # "1. Scope" above a line as long as itself is the title of a chapter, and no item.
    chapter = item & np.append(is_rule[1:] & (lengths[1:] == lengths[:-1]), False)
    title = visible & ~code & ~taken & ~marked & ~(item & ~chapter) & ~(uniform & (lengths >= _RULE) & is_rule)
    title &= ~(is_rule & np.append(False, title[:-1]))
    markdown = (char == ord("=")) | (char == ord("-"))
    under = np.flatnonzero(is_rule & np.append(False, title[:-1]))
    above = under - 1
    enough = markdown[under] | ((lengths[under] >= _RULES_AT_LEAST) & (lengths[under] >= lengths[above]))
    under, above = under[enough], above[enough]
    top = above.copy()
    for _ in range(_TITLE_LINES - 1):
        top = np.where(markdown[under] & (top > 0) & title[np.maximum(top - 1, 0)], np.maximum(top - 1, 0), top)
    # One or two hyphens below a paragraph of several lines: an empty item.
    keep = (lines.lasts[above] - firsts[top] <= _HEADING_CHARS) & ~((lengths[under] < _RULE) & (top != above))
    under, above, top = under[keep], above[keep], top[keep]
    return firsts[top], lines.lasts[above], _underline_levels(char[under])


def _underline_levels(chars: np.ndarray) -> np.ndarray:
    """int8: = and - are Markdown's; where there are others too, levels are in the order in which a text uses them first."""
    kinds, first = np.unique(chars, return_index=True)
    if np.isin(kinds, [ord("="), ord("-")]).all():
        return np.where(chars == ord("="), 1, 2).astype(np.int8)
    ranks = np.argsort(np.argsort(first))
    return np.minimum(ranks[np.searchsorted(kinds, chars)] + 1, _LEVELS).astype(np.int8)


def _marks(lines: Lines, char: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """bool [lines], twice: begins as a heading, a quotation, a table or a bullet does; as a numbered item."""
    second, third = lines.code_at(lines.firsts + 1), lines.code_at(lines.firsts + 2)
    space = (0x20, 0x09)
    bullet = np.isin(char, [ord(each) for each in "-+*"]) & np.isin(second, space)
    is_digit = (char >= 0x30) & (char <= 0x39)
    close = [ord(each) for each in ".)"]
    item = is_digit & (
        (np.isin(second, close) & np.isin(third, space)) | ((second >= 0x30) & (second <= 0x39) & np.isin(third, close))
    )
    return np.isin(char, [ord(each) for each in "#>|"]) | bullet, item


def _html_headings(lines: Lines, hidden: list[tuple[int, int]]) -> Found:
    text = lines.text
    found = [(match.start(), match.end(), int(match[1])) for match in _HEADING_TAG.finditer(text)]
    if not found:
        return NOTHING
    ends = np.array([match.start() for match in _HEADING_END.finditer(text)] + [len(text)], np.int64)
    begins, inner, levels = np.array(found, np.int64).T
    # Up to its end tag, or as far as a heading reaches.
    stops = np.minimum(ends[np.searchsorted(ends, inner)], inner + _HEADING_CHARS * 5)
    keep = np.ones(len(begins), bool)
    if hidden:
        spans = np.array(hidden, np.int64)
        span = np.searchsorted(spans[:, 0], begins, side="right") - 1
        keep = (span < 0) | (begins >= spans[np.maximum(span, 0), 1])
    return found_places(begins[keep], np.minimum(stops, len(text))[keep], levels[keep])


def _outside(found: Found, lines: Lines, code: np.ndarray) -> Found:
    """Those that do not stand in code."""
    keep = ~code[lines.at(found.positions)] if len(found) else np.zeros(0, bool)
    return Found(found.positions[keep], found.ends[keep], found.levels[keep])
