"""Filters, tests and functions of a chat template, none of which costs more than it is charged. Owns: their lists, and limits
of what they take. Needs: the budget. Never: attributes, operators (sandbox.py).

Not on the list is what templates of chats have no use for (`groupby`), what could make something out of any size (`center`),
and `striptags`: it turns `&lt;` into `<` behind the back of the marks that tell text of users (rendered.py).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from jinja2.exceptions import SecurityError
from markupsafe import escape

from edge.text.sandbox_budget import (
    COMPARED_AT_ONCE,
    MAX_NUMBER_BITS,
    Raised,
    charge,
    charge_comparison,
    check_built,
    counted,
    depth_of,
    length_of,
    text_of,
    written_size,
)
from edge.text.sandbox_formats import check_percent_format

MAX_PLACES = 20  # of round
MAX_INDENT = 16  # of JSON
MAX_WIDTH = 999  # of indent
# Filters of text: what they are given is written out first.
TEXT_FILTERS = frozenset(
    {"capitalize", "format", "indent", "lower", "replace", "string", "title", "trim", "upper", "wordcount"}
)
# Filters of lists that compare all their items.
SORTING_FILTERS = frozenset({"dictsort", "max", "min", "sort", "unique"})
OTHER_FILTERS = frozenset({
    "abs", "count", "d", "default", "first", "float", "int", "items", "join", "last", "length", "list", "map", "reject",
    "rejectattr", "reverse", "round", "select", "selectattr",
})  # fmt: skip
# Tests that look at what kind of value they have, not at what it holds.
TYPE_TESTS = frozenset({
    "boolean", "callable", "defined", "false", "float", "integer", "iterable", "mapping", "none", "number", "sameas",
    "sequence", "string", "true", "undefined",
})  # fmt: skip

_Function = Callable[..., Any]


def bounded_filters(filters: Mapping[str, Any]) -> dict[str, Any]:
    """Those of Jinja's `filters` that a template may use, each charged for what it does."""
    bounded: dict[str, Any] = {name: _of_text(filters[name]) for name in TEXT_FILTERS}
    bounded |= {name: _of_items(filters[name], charge_comparison) for name in SORTING_FILTERS}
    bounded |= {name: _of_items(filters[name], _charge_length) for name in OTHER_FILTERS}
    for name, limited in _LIMITED.items():
        bounded[name] = limited(bounded[name])
    # No text is Markup: it would change what it is joined with.
    return bounded | {"tojson": to_json, "safe": text_of, "escape": _escaped, "e": _escaped}


def bounded_tests(tests: Mapping[str, Any]) -> dict[str, Any]:
    """Jinja's `tests`, charged for what they compare."""
    return {name: test if name in TYPE_TESTS else _comparing(test) for name, test in tests.items()}


def bounded_range(*args: int) -> range:
    numbers = range(*args)
    charge(len(numbers))
    return numbers


def raise_exception(message: object) -> None:
    raise Raised(text_of(message))


def strftime_now(layout: str) -> str:
    check_percent_format(layout, ())
    return datetime.now().strftime(layout)


def to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: tuple[str, str] | None = None,
            sort_keys: bool = False) -> str:  # fmt: skip
    if indent is not None and not 0 <= indent <= MAX_INDENT:
        raise SecurityError(f"it indents JSON by {indent}, the most is {MAX_INDENT}")
    if ensure_ascii:
        raise SecurityError("it asks for JSON in ASCII, in which marked text could not be told")
    longest = max(map(len, separators)) if separators else 1
    charge(written_size(value) * (longest + (indent or 0) * depth_of(value)))
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
    charge(len(text))
    return text


def charge_replaced(text: str, old: Any, new: Any) -> None:
    """For text.replace(old, new)."""
    if isinstance(old, str) and isinstance(new, str):
        charge(len(text) + (text.count(old) if old else len(text) + 1) * len(new))


def charge_searched(text: str, *sought: Any) -> None:
    """For a method of `text` that looks for `sought`; backwards, and for a set of characters, that takes their product."""
    charge(len(text) * (1 + sum(map(written_size, sought)) // COMPARED_AT_ONCE))


def _charge_length(value: Any) -> None:
    charge(length_of(value))


def _escaped(value: Any) -> str:
    return str(escape(text_of(value)))


def _of_text(apply: _Function) -> _Function:
    place = 1 if hasattr(apply, "jinja_pass_arg") else 0  # the context comes first

    @functools.wraps(apply)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        return apply(*args[:place], text_of(args[place]), *args[place + 1 :], **kwargs)

    return bounded


def _of_items(apply: _Function, charge_for: Callable[[Any], None]) -> _Function:
    place = 1 if hasattr(apply, "jinja_pass_arg") else 0

    @functools.wraps(apply)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        value = args[place]
        if isinstance(value, Iterator):
            value = counted(value, 1)
            if charge_for is charge_comparison:
                value = list(value)
                check_built(value)
        charge_for(value)
        result = apply(*args[:place], value, *args[place + 1 :], **kwargs)
        check_built([result])
        return result

    return bounded


def _comparing(test: _Function) -> _Function:
    @functools.wraps(test)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        charge_comparison(*args, *kwargs.values())
        return test(*args, **kwargs)

    return bounded


def _replacing(apply: _Function) -> _Function:
    @functools.wraps(apply)
    def limited(eval_ctx: Any, s: Any, old: Any, new: Any, count: int | None = None) -> Any:
        text, old, new = text_of(s), text_of(old), text_of(new)
        charge_replaced(text, old, new)
        return apply(eval_ctx, text, old, new, count)

    return limited


def _joining(apply: _Function) -> _Function:
    @functools.wraps(apply)
    def limited(eval_ctx: Any, value: Any, d: str = "", attribute: str | int | None = None) -> Any:
        parts = list(counted(value, 1))
        charge(sum(map(written_size, parts)) + len(d) * len(parts))
        return apply(eval_ctx, parts, d, attribute)

    return limited


def _indenting(apply: _Function) -> _Function:
    @functools.wraps(apply)
    def limited(s: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> Any:
        text = text_of(s)
        amount = len(width) if isinstance(width, str) else width
        if amount > MAX_WIDTH:
            raise SecurityError(f"it indents by {amount}, the most is {MAX_WIDTH}")
        charge((1 + len(text.splitlines())) * amount)
        return apply(text, width, first, blank)

    return limited


def _formatting(apply: _Function) -> _Function:
    @functools.wraps(apply)
    def limited(value: Any, *args: Any, **kwargs: Any) -> Any:
        text = text_of(value)
        check_percent_format(text, (*args, *kwargs.values()))
        return apply(text, *args, **kwargs)

    return limited


def _trimming(apply: _Function) -> _Function:
    @functools.wraps(apply)
    def limited(value: Any, chars: str | None = None) -> Any:
        text = text_of(value)
        charge_searched(text, chars)
        return apply(text, chars)

    return limited


def _rounding(apply: _Function) -> _Function:
    @functools.wraps(apply)
    def limited(value: Any, precision: int = 0, method: str = "common") -> Any:
        if abs(precision) > MAX_PLACES:
            raise SecurityError(f"it rounds to {precision} places, the most is {MAX_PLACES}")
        return apply(value, precision, method)

    return limited


def _parsing(apply: _Function) -> _Function:
    """Text that is longer than any number is none: reading it as one takes the square of its length."""

    @functools.wraps(apply)
    def limited(value: Any, *args: Any, **kwargs: Any) -> Any:
        is_number = not isinstance(value, str) or len(value) <= MAX_NUMBER_BITS // 8
        return apply(value if is_number else "", *args, **kwargs)

    return limited


_LIMITED: dict[str, Callable[[_Function], _Function]] = {
    "replace": _replacing, "join": _joining, "indent": _indenting, "format": _formatting, "trim": _trimming,
    "round": _rounding, "int": _parsing, "float": _parsing,
}  # fmt: skip
