"""What a chat template may spend. Owns: the budget of a render and what is charged to it. Needs: jinja2's errors.
Never: which names a template sees (sandbox.py).

What the interpreter does in one go (writes a list out, compares two) cannot be stopped in between. So no value is built that
would be larger, written out, than what is left to spend; each such piece of work is then bounded, and charged before it is
done.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from jinja2.exceptions import SecurityError, TemplateRuntimeError
from jinja2.utils import Namespace

BASE_BUDGET = 4 << 20  # characters and steps of a render, whatever its input
BUDGET_FACTOR = 64  # more of them for each character of input: templates copy a message a few times
MAX_SECONDS = 10.0  # what takes longer does not end; real templates take milliseconds
STEP_COST = 32  # of a loop step, a call or a new list, in characters
MAX_NUMBER_BITS = 4096
MAX_DEPTH = 64  # of lists in lists; the interpreter recurses to hash them, and JSON of real tools has some ten
COMPARED_AT_ONCE = 16  # characters that are compared in the time of one step
_OTHER_SIZE = 64  # of an object that holds nothing, written out
_VIEWS: tuple[type[Collection[Any]], ...] = (type({}.keys()), type({}.values()), type({}.items()))
_CONTAINERS: tuple[type[Collection[Any]], ...] = (list, tuple, dict, set, frozenset, *_VIEWS)
_SIZED: tuple[type[Collection[Any]], ...] = (str, range, *_CONTAINERS)
_SPENT = "it loops or allocates without end"


class Raised(TemplateRuntimeError):
    """The template itself refused its input (raise_exception)."""


@dataclass(frozen=True, slots=True)
class _Measure:
    size: int  # characters of a value written out, about
    depth: int  # how deep lists are nested in it
    is_writable: bool = True  # it holds no namespace: that can change behind any measure, or hold itself


class _Budget:
    def __init__(self, left: int) -> None:
        self.left, self.deadline = left, time.monotonic() + MAX_SECONDS
        # By id of a list or dict, which never changes while a template runs: itself, so that the id stays its own.
        self.measures: dict[int, tuple[Any, _Measure]] = {}

    def charge(self, amount: int) -> None:
        self.left -= amount
        if self.left < 0:
            raise SecurityError(_SPENT)
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


def length_of(value: Any) -> int:
    """Items or characters of `value` itself, whatever its items hold."""
    return len(value) if isinstance(value, _SIZED) else 1


def written_size(value: Any) -> int:
    """Characters of `value` written out, about; what stands in a list twice counts twice."""
    measure = _measure(value)
    if not measure.is_writable:
        raise SecurityError("it writes a namespace out")
    return measure.size


def depth_of(value: Any) -> int:
    """How deep lists are nested in `value`; 0 for what holds nothing."""
    return _measure(value).depth


def check_built(values: Iterable[Any]) -> None:
    """Whether something that holds `values` may exist."""
    measures = [_measure(value) for value in values]
    if sum(measure.size for measure in measures) > _budget.get().left:
        raise SecurityError(_SPENT)
    if any(measure.depth >= MAX_DEPTH for measure in measures):
        raise SecurityError(f"it nests lists deeper than {MAX_DEPTH}")


def text_of(value: Any) -> str:
    """`value` written out, and charged for."""
    charge(written_size(value))
    return value if isinstance(value, str) else str(value)


def charge_comparison(*values: Any) -> None:
    """For comparing, hashing or searching all of these."""
    charge(1 + sum(_measure(value).size for value in values) // COMPARED_AT_ONCE)


def counted(values: Any, cost: int) -> Any:
    """What a loop runs over, each step charged with `cost`."""
    if isinstance(values, _SIZED):
        charge(len(values) * cost)
        return values
    return _counted_steps(values, cost)


def _counted_steps(values: Iterable[Any], cost: int) -> Iterator[Any]:
    for value in values:
        charge(cost)
        yield value


def _measure(value: Any) -> _Measure:
    if isinstance(value, str):
        return _Measure(len(value) + 2, 0)
    if isinstance(value, int):
        return _Measure(value.bit_length() // 3 + 2, 0)
    if not isinstance(value, _CONTAINERS):
        return _Measure(4 if value is None else _OTHER_SIZE, 0, not isinstance(value, Namespace))
    measures = _budget.get().measures
    if id(value) not in measures:  # a list that stands in many others is measured once
        measures[id(value)] = value, _measure_items([*value, *value.values()] if isinstance(value, dict) else value)
    return measures[id(value)][1]


def _measure_items(items: Iterable[Any]) -> _Measure:
    size, depth, is_writable = 2, 0, True
    for item in items:
        if isinstance(item, str):  # most are, and need no measure of their own
            size += len(item) + 4
        else:
            measure = _measure(item)
            size += measure.size + 2
            depth = max(depth, measure.depth)
            is_writable = is_writable and measure.is_writable
    return _Measure(size, depth + 1, is_writable)
