"""What a chat template may spend. Owns: the budget of a render, what is charged to it, checked filters. Needs: jinja2's errors.
Never: which names a template sees (sandbox.py)."""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any

from jinja2.exceptions import SecurityError, TemplateRuntimeError

BASE_BUDGET = 4 << 20  # characters and steps of a render, whatever its input
BUDGET_FACTOR = 64  # more of them for each character of input: templates copy a message a few times
MAX_SECONDS = 10.0  # what takes longer does not end; real templates take milliseconds
STEP_COST = 32  # of a loop step or a call, in characters
MAX_NUMBER_BITS = 4096
MAX_WIDTH = 999  # of a formatted field
MAX_INDENT = 16
# A width over MAX_WIDTH, or one taken from an argument, behind % or in {}.
_WIDTH = re.compile(r"%[^a-zA-Z%]*(\*|\d{4,})|\{[^{}]*:[^{}]*(\{|\d{4,})")


class Raised(TemplateRuntimeError):
    """The template itself refused its input (raise_exception)."""


class _Budget:
    def __init__(self, left: int) -> None:
        self.left, self.deadline = left, time.monotonic() + MAX_SECONDS

    def charge(self, amount: int) -> None:
        self.left -= amount
        if self.left < 0:
            raise SecurityError("it loops or allocates without end")
        if time.monotonic() > self.deadline:
            raise SecurityError(f"it runs longer than {MAX_SECONDS:.0f} s")


_budget: ContextVar[_Budget] = ContextVar("budget")


def charge(amount: int) -> None:
    """Takes `amount` from the budget of the render that runs. SecurityError where nothing is left."""
    _budget.get().charge(amount)


@contextmanager
def budget_for(input_size: int) -> Iterator[None]:
    """A render of templates over an input of so many characters."""
    token = _budget.set(_Budget(BASE_BUDGET + BUDGET_FACTOR * input_size))
    try:
        yield
    finally:
        _budget.reset(token)


def charged_output(value: Any) -> Any:
    """Charges for what is written, wherever it goes: `{% set %}` blocks and macros collect it too."""
    text = value if isinstance(value, str) else str(value)
    charge(len(text))
    return text


def size_of(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple | dict) else 1


def check_product(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        if left.bit_length() + right.bit_length() > MAX_NUMBER_BITS:
            raise SecurityError("it computes an enormous number")
        return
    for text, times in ((left, right), (right, left)):
        if isinstance(text, str | list | tuple) and isinstance(times, int):
            charge(len(text) * max(times, 0))


def check_format(text: str, values: Iterable[Any]) -> None:
    if _WIDTH.search(text):
        raise SecurityError(f"it formats a field wider than {MAX_WIDTH}, or of a width that an argument gives")
    charge(len(text) * (1 + MAX_WIDTH) + sum(len(str(value)) * (1 + text.count("{")) for value in values))


def replaced_size(text: str, old: str, new: str) -> int:
    return len(text) + (text.count(old) if old else len(text) + 1) * len(new)


def counted(values: Any, cost: int) -> Any:
    """What a loop runs over, each step charged with `cost`."""
    if isinstance(values, str | list | tuple | dict | range):
        charge(len(values) * cost)
        return values
    return _counted_steps(values, cost)


def _counted_steps(values: Iterable[Any], cost: int) -> Iterator[Any]:
    for value in values:
        charge(cost)
        yield value


def bounded_range(*args: int) -> range:
    numbers = range(*args)
    charge(len(numbers))
    return numbers


def raise_exception(message: object) -> None:
    raise Raised(str(message))


def strftime_now(layout: str) -> str:
    check_format(layout, ())
    return datetime.now().strftime(layout)


def to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: tuple[str, str] | None = None,
            sort_keys: bool = False) -> str:  # fmt: skip
    if indent is not None and not 0 <= indent <= MAX_INDENT:
        raise SecurityError(f"it indents JSON by {indent}, the most is {MAX_INDENT}")
    if ensure_ascii:
        raise SecurityError("it asks for JSON in ASCII, in which marked text could not be told")
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
    charge(len(text))
    return text


def charged(apply: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that is charged for the size of what it is given."""
    place = 1 if hasattr(apply, "jinja_pass_arg") else 0  # the context comes first

    @functools.wraps(apply)
    def charged(*args: Any, **kwargs: Any) -> Any:
        charge(size_of(args[place]))
        return apply(*args, **kwargs)

    return charged


def _replacing(apply: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(apply)
    def checked(eval_ctx: Any, s: str, old: str, new: str, count: int | None = None) -> Any:
        charge(replaced_size(str(s), str(old), str(new)))
        return apply(eval_ctx, s, old, new, count)

    return checked


def _joining(apply: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(apply)
    def checked(eval_ctx: Any, value: Any, d: str = "", attribute: str | int | None = None) -> Any:
        parts = list(value)
        charge(sum(map(size_of, parts)) + len(d) * len(parts))
        return apply(eval_ctx, parts, d, attribute)

    return checked


def _indenting(apply: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(apply)
    def checked(s: str, width: int | str = 4, first: bool = False, blank: bool = False) -> Any:
        amount = len(width) if isinstance(width, str) else width
        if amount > MAX_WIDTH:
            raise SecurityError(f"it indents by {amount}, the most is {MAX_WIDTH}")
        charge(s.count("\n") * amount)
        return apply(s, width, first, blank)

    return checked


def _formatting(apply: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(apply)
    def checked(value: str, *args: Any, **kwargs: Any) -> Any:
        check_format(str(value), (*args, *kwargs.values()))
        return apply(value, *args, **kwargs)

    return checked


CHECKED_FILTERS = {"replace": _replacing, "join": _joining, "indent": _indenting, "format": _formatting}
