"""Format strings of a chat template. Owns: which fields they may have. Needs: the budget. Never: formats anything."""

from __future__ import annotations

import re
from collections.abc import Iterable
from string import Formatter
from typing import Any

from jinja2.exceptions import SecurityError

from edge.text.sandbox_budget import charge, written_size

MAX_FIELD_WIDTH = 999  # digits of a width or precision: three
_WIDE = re.compile(r"\d{4}")
# `%%`, or one field up to the letter that ends it. A key that holds brackets, and a field that a second % ends, Python reads
# in ways of its own.
_PERCENT_FIELD = re.compile(r"%(?:%|(?P<key>\([^()]*\))?(?P<width>[^a-zA-Z%]*)[hlL]?(?P<odd>%?))")


def check_percent_format(text: str, values: Iterable[Any]) -> None:
    """Charges for `text % values`; SecurityError where a field is wide, or as wide as a value says."""
    _charge(text, values)
    for field in _PERCENT_FIELD.finditer(text):
        width = field["width"] or ""
        if field["odd"] or "(" in width or "*" in width or _WIDE.search(width):
            raise _refusal(field[0])


def check_brace_format(text: str, values: Iterable[Any]) -> None:
    """Charges for text.format(*values); SecurityError as above, ValueError where `format` would raise it."""
    _charge(text, values)
    for _, _, layout, _ in Formatter().parse(text):
        if layout and ("{" in layout or _WIDE.search(layout)):
            raise _refusal(layout)


def _charge(text: str, values: Iterable[Any]) -> None:
    fields = text.count("{") + text.count("%")
    charge(len(text) * (1 + MAX_FIELD_WIDTH) + sum(map(written_size, values)) * (1 + fields))


def _refusal(field: str) -> SecurityError:
    return SecurityError(
        f"it formats a field ({field[:20]!r}) wider than {MAX_FIELD_WIDTH}, or of a width that an argument gives"
    )
