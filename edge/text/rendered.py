"""A rendered chat in which text of users is told from text of the template. Owns: the marks. Needs: nothing. Never: Jinja.

A control token has to begin with its first character and to end with its last. Where those characters stand in text from
outside (messages, tools), they are replaced by private characters before rendering and put back after the special tokens
have been matched. So text from outside makes no control token, whatever a template does to it: trims, splits, changes its
case, joins it. The one thing left is a template that itself writes both ends of a token around such text; for roles some
do (`<|{{ role }}|>`), so roles are checked against a list (template.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from edge.errors import RequestError

PRIVATE = range(0x10F000, 0x10FFFE)  # plane 16, private use: in no vocabulary and hardly in any text
MAX_DEPTH = 64  # of lists and objects in messages; JSON of real tools has some ten
_TAG = re.compile(r"</?[A-Za-z_]+>")  # </think>, <tool_response>: templates look for them in messages


@dataclass(frozen=True)
class RenderedChat:
    """What a template wrote."""

    marked: str  # with marks in place of characters from outside that could begin or end a control token
    marks: Mapping[int, int]  # mark -> character

    @property
    def text(self) -> str:
        """The chat as a reader sees it."""
        return self.restore(self.marked)

    def restore(self, marked: str) -> str:
        """A part of `marked` with its own characters again."""
        return marked.translate(self.marks)


class Marker:
    """Replaces characters that could begin or end one of `controls`."""

    def __init__(self, controls: Iterable[str], outside: object) -> None:
        """`outside`: all that will be marked; its characters are not used as marks."""
        self._controls = [text for text in controls if text]
        edges = sorted({text[0] for text in self._controls} | {text[-1] for text in self._controls})
        used = set(_characters(outside))
        free = (code for code in PRIVATE if chr(code) not in used)
        marks = dict(zip(map(ord, edges), free, strict=False))
        if len(marks) < len(edges):
            raise RequestError("a message uses every private character from U+10F000 on. Take some of them out")
        self._marks = marks
        self.restoring: dict[int, int] = {mark: edge for edge, mark in marks.items()}

    @cached_property
    def _folded(self) -> frozenset[str]:
        return frozenset(text.casefold() for text in self._controls)

    def mark(self, value: Any) -> Any:
        """JSON-like data with all its strings marked. Plain tags that are no control token stay, for templates to find."""
        if isinstance(value, str):
            return self._mark_text(value)
        if isinstance(value, Mapping):
            return {self._mark_text(str(key)): self.mark(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.mark(item) for item in value]
        if value is None or isinstance(value, bool | int | float):
            return value
        raise RequestError(f"a message holds a {type(value).__name__}. Give text, numbers, lists and objects only")

    def _mark_text(self, text: str) -> str:
        marked, done = [], 0
        for tag in _TAG.finditer(text):
            if tag[0].casefold() not in self._folded:
                marked += [text[done : tag.start()].translate(self._marks), tag[0]]
                done = tag.end()
        return "".join([*marked, text[done:].translate(self._marks)])


def check_depth(outside: object) -> None:
    """RequestError where lists and objects are nested deeper than the walks over them go."""
    level = [outside]
    for _ in range(MAX_DEPTH):
        level = [item for value in level for item in _items(value)]
        if not level:
            return
    raise RequestError(f"a message nests lists and objects deeper than {MAX_DEPTH}. Give it flatter")


def _items(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def _characters(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield from value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _characters(key)
            yield from _characters(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _characters(item)
