"""Labels from marked-up text: where its headings are, and the same text without its marks. Owns: both readings of HTML and
Markdown. Needs: html.parser, markdown-it-py. Never: anything of edge, so that the labels are another's opinion.

Without marks a text is what a reader sees: blocks apart, items of lists with the bullet or the number that a browser draws,
code as it is, cells of a table separated by tabs. A heading is then a block like any other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from html.parser import HTMLParser
from typing import Literal

Layout = Literal["blocks", "lines", "wrapped"]
WIDTH = 72  # columns of wrapped text
_HEADINGS = {"h1", "h2", "h3", "h4", "h5", "h6"}
_HIDDEN = {"script", "style", "head", "title", "template", "svg"}
_BLOCKS = _HEADINGS | {
    "p", "div", "li", "ul", "ol", "dl", "dt", "dd", "table", "tr", "pre", "blockquote", "section", "article", "main", "header",
    "footer", "nav", "aside", "form", "hr", "body", "html", "figure", "figcaption", "address", "fieldset", "details", "summary",
    "caption", "thead", "tbody",
}  # fmt: skip
# What a web site puts around its pages. It is no text of the document, and a heading in it heads nothing.
_NAVIGATION = re.compile(r"\b(?:navheader|navfooter|docnav|related|sphinxsidebar|footer|banner|headerlink|indexterm)\b")
_VOID = {"br", "hr", "img", "input", "link", "meta", "area", "base", "col", "embed", "source", "track", "wbr"}
_NUMBER = re.compile(
    r"^(?:\d+(?:\.\d+)*\.?|[A-Z](?:\.\d+)+\.?|第\s*\d+\s*章|附录\s*[A-Z]\.?"
    r"|(?:Kapitel|Chapter|Chapitre|Capítulo|Anhang|Appendix|Annexe|Apéndice)\s+(?:\d+|[A-Z])\.?)\s+"
)


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text and the characters at which its headings begin."""

    text: str
    headings: tuple[int, ...]


@dataclass(slots=True)
class _Block:
    text: str
    is_heading: bool = False
    is_code: bool = False
    prefix: str = ""  # the bullet or number of an item


def marked_html(text: str) -> Labelled:
    """The tags of its headings."""
    return Labelled(text, tuple(_read(text).heading_tags))


def marked_markdown(text: str) -> Labelled:
    """The lines of its headings, by markdown-it-py (CommonMark with tables)."""
    starts = _line_starts(text)
    places = []
    for token in _markdown(text):
        if token.type == "heading_open" and token.map is not None:
            line = text[starts[token.map[0]] :].split("\n", 1)[0]
            places.append(starts[token.map[0]] + len(line) - len(line.lstrip(" >")))
    for tag in _Reader(_without_code(text)).heading_tags:  # Markdown may hold HTML
        places.append(tag)
    return Labelled(text, tuple(sorted(set(places))))


def plain_html(text: str, layout: Layout, numbered: bool = True) -> Labelled:
    """HTML without tags."""
    return _plain(_read(text).blocks, layout, numbered)


def plain_markdown(text: str, layout: Layout, numbered: bool = True) -> Labelled:
    """Markdown without marks: as HTML, without tags."""
    return plain_html(_rendered(text), layout, numbered)


@lru_cache(maxsize=1)
def _read(text: str) -> _Reader:
    return _Reader(text)


@lru_cache(maxsize=1)
def _rendered(text: str) -> str:
    from markdown_it import MarkdownIt

    body = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.S)
    return MarkdownIt("commonmark").enable("table").render(body)


def _markdown(text: str) -> list:
    from markdown_it import MarkdownIt

    body = re.sub(r"\A---\n.*?\n---\n", lambda found: "\n" * found[0].count("\n"), text, flags=re.S)
    return MarkdownIt("commonmark").enable("table").parse(body)


def _without_code(text: str) -> str:
    """`text` with its code blocks blanked, as long as before."""
    lines = text.split("\n")
    for token in _markdown(text):
        if token.type in ("fence", "code_block") and token.map is not None:
            for line in range(*token.map):
                lines[line] = " " * len(lines[line])
    blanked = re.sub(r"`[^`\n]*`", lambda found: " " * len(found[0]), "\n".join(lines))
    return blanked


def _line_starts(text: str) -> list[int]:
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    return starts


def _plain(blocks: list[_Block], layout: Layout, numbered: bool) -> Labelled:
    parts: list[str] = []
    headings: list[int] = []
    length = 0
    for block in blocks:
        text = block.text
        if block.is_heading:
            headings.append(length)
            text = text if numbered else _NUMBER.sub("", text)
        if layout == "wrapped" and not block.is_code:
            text = _wrapped(text)
        text = block.prefix + text + ("\n" if layout == "lines" else "\n\n")
        parts.append(text)
        length += len(text)
    return Labelled("".join(parts), tuple(headings))


def _wrapped(text: str) -> str:
    """At spaces; scripts without them at the column."""
    lines, line = [], ""
    for word in re.findall(r"[\u2e80-\u9fff\uff00-\uffef]|[^\s\u2e80-\u9fff\uff00-\uffef]+|\s+", text):
        if len(line) + len(word) > WIDTH and line.strip():
            lines.append(line.rstrip())
            line = ""
        line += word if line or word.strip() else ""
    return "\n".join([*lines, line.rstrip()])


class _Reader(HTMLParser):
    """Blocks of an HTML page, and the places of its heading tags."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self._starts = _line_starts(text)
        self.heading_tags: list[int] = []
        self.blocks: list[_Block] = []
        self._text: list[str] = []
        self._prefix = ""
        self._hidden = self._code = self._heading = 0
        self._lists: list[int] = []
        self._navigation = 0  # how many elements deep inside of one
        self.feed(text)
        self.close()
        self._flush()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _HIDDEN:
            self._hidden += 1
        if self._hidden:
            return
        if tag in _HEADINGS:
            line, column = self.getpos()
            self.heading_tags.append(self._starts[line - 1] + column)
        if self._navigation or tag == "nav" or _NAVIGATION.search(dict(attrs).get("class") or dict(attrs).get("id") or ""):
            if not self._navigation and tag in _BLOCKS:
                self._flush()
            self._navigation += tag not in _VOID
            return
        if tag in _BLOCKS:
            self._flush()
        if tag in _HEADINGS:
            self._heading = 1
        elif tag == "pre":
            self._code += 1
        elif tag in ("ul", "ol"):
            self._lists.append(0 if tag == "ul" else 1)
        elif tag == "li":
            number = self._lists[-1] if self._lists else 0
            self._prefix = f"{number}. " if number else "- "
            if number:
                self._lists[-1] += 1
        elif tag == "br":
            self._text.append("\n" if self._code else " ")
        elif tag in ("td", "th"):
            self._text.append("\t")

    def handle_endtag(self, tag: str) -> None:
        if tag in _HIDDEN:
            self._hidden = max(self._hidden - 1, 0)
            return
        if self._hidden:
            return
        if self._navigation:
            self._navigation -= tag not in _VOID
            return
        if tag in _BLOCKS:
            self._flush()
        if tag in _HEADINGS:
            self._heading = 0
        elif tag == "pre":
            self._code = max(self._code - 1, 0)
        elif tag in ("ul", "ol") and self._lists:
            self._lists.pop()

    def handle_data(self, data: str) -> None:
        if not self._hidden and not self._navigation:
            self._text.append(data)

    def _flush(self) -> None:
        joined = "".join(self._text)
        self._text = []
        text = joined.strip("\n") if self._code else re.sub(r"[ \n\r\xa0]*\t[\s\xa0]*", "\t", joined.strip()).strip("\t")
        if not self._code:
            text = re.sub(r"[^\S\t]+", " ", text).strip()
        if not text.strip() or text in ("¶", "#"):
            return
        if self._heading:
            text = text.rstrip("¶#").rstrip()
        if not text:
            return
        self.blocks.append(_Block(text, bool(self._heading), bool(self._code), self._prefix))
        self._prefix = ""
