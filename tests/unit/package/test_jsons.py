"""The strict JSON reader beside what the manifest needs of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest

from edge.jsons import JsonMismatch, _unique, read_json, write_json


@dataclass(frozen=True, slots=True)
class Example:
    name: str
    rate: float
    kind: Literal["a", "b"]
    note: str | None
    pair: tuple[int, str]
    sizes: dict[str, int]

    def __post_init__(self) -> None:
        if self.rate < 0:
            raise ValueError("rate is below 0")


EXAMPLE = Example("é", 1.5, "a", None, (1, "x"), {"k": 2})


def test_every_kind_of_field_reads_back() -> None:
    assert read_json(write_json(EXAMPLE), Example) == EXAMPLE


def test_a_whole_number_is_a_number_too() -> None:
    read = read_json(write_json(EXAMPLE).replace("1.5", "2"), Example)
    assert read.rate == 2.0 and isinstance(read.rate, float)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"a"', '"c"', "kind: \"c\" is none of a, b"),
        ("null", "3", "note: expected text, found 3"),
        ('"x"', '"x", 1', "pair: expected 2 items, found 3"),
        ("1.5", "-1.5", "rate is below 0"),
        ("1.5", "9007199254740993", "rate: expected a number, found 9007199254740993"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named(old: str, new: str, message: str) -> None:
    with pytest.raises(JsonMismatch) as caught:
        read_json(write_json(EXAMPLE).replace(old, new, 1), Example)
    assert str(caught.value) == message


def test_a_value_nested_as_deep_as_reading_allows_is_refused_like_any_other() -> None:
    for depth in range(900, 1000):  # the limit lies somewhere here, and writing the value out needs a little more
        nested = "[" * depth + "]" * depth
        with pytest.raises(JsonMismatch):
            read_json(write_json(EXAMPLE).replace('"é"', nested), Example)


def test_a_key_that_is_there_twice_is_found_among_many() -> None:
    class Counted(str):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    names = [Counted(f"key {place}") for place in range(5000)]
    with pytest.raises(JsonMismatch, match="key 'key 4999' stands there twice"):
        _unique([(name, 0) for name in [*names, Counted("key 4999")]])
    assert Counted.compared < 100
