"""The keys of a model file, read by type. Owns: which keys were asked for. Needs: values by name. Never: what a key means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from edge.errors import SourceError
from engines.sources.gguf_header import Value

LARGEST_COUNT = 1 << 31  # of tokens, layers, heads, widths: above it a number is a mistake or an attack
SMALLEST_REAL, LARGEST_REAL = 1e-30, 1e30  # bases, factors, scales: what is made of them cannot overflow


class Keys:
    """Typed reads that name file and key when something is missing or wrong."""

    def __init__(self, path: Path, values: Mapping[str, Value], nulls: Iterable[str] = ()) -> None:
        """`nulls`: keys that a JSON file has with the value null. They count as not there, and have no default."""
        self.path = path
        self._values = values
        self._nulls = frozenset(nulls)
        self._asked: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def has_any(self, prefix: str) -> bool:
        """Whether some key begins with `prefix`."""
        return any(key.startswith(prefix) for key in self._values)

    def with_defaults(self, prefix: str, defaults: Mapping[str, Value]) -> Keys:
        """The same keys, and under `prefix` those of `defaults` that the file does not name."""
        missing = {prefix + key: value for key, value in defaults.items() if prefix + key not in self._nulls}
        return Keys(self.path, missing | dict(self._values), self._nulls)

    def error(self, key: str, fact: str, step: str = "Convert the model again, or fetch another file") -> SourceError:
        return SourceError(f"{self.path}: key {key}: {fact}. {step}")

    def _get(self, key: str) -> Value:
        self._asked.add(key)
        if key not in self._values:
            raise self.error(key, "is missing")
        return self._values[key]

    def is_list(self, key: str) -> bool:
        return isinstance(self._values.get(key), np.ndarray | tuple)

    def count(self, key: str, at_most: int = LARGEST_COUNT) -> int:
        """A whole number from 1. An array is taken when all its items are equal: some converters write one a layer."""
        value = self._get(key)
        if isinstance(value, np.ndarray) and value.size and value.dtype.kind in "iu" and (value == value[0]).all():
            value = int(value[0])
        if type(value) is not int or not 1 <= value <= at_most:
            raise self.error(key, f"is {_shown(value)}, not a whole number from 1 to {at_most:,}")
        return value

    def count_or(self, key: str, default: int) -> int:
        return self.count(key) if key in self else default

    def index(self, key: str, below: int) -> int:
        """A whole number in [0, below)."""
        value = self._get(key)
        if type(value) is not int or not 0 <= value < below:
            raise self.error(key, f"is {_shown(value)}, not a whole number from 0 to {below - 1:,}")
        return value

    def real(self, key: str) -> float:
        """A positive number of a size that models have."""
        value = self._get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not SMALLEST_REAL <= value <= LARGEST_REAL:
            raise self.error(key, f"is {_shown(value)}, not a positive number that a model has")
        return float(value)

    def real_or(self, key: str, default: float) -> float:
        return self.real(key) if key in self else default

    def text(self, key: str) -> str:
        value = self._get(key)
        if not isinstance(value, str):
            raise self.error(key, f"is {_shown(value)}, not text")
        return value

    def text_or(self, key: str, default: str) -> str:
        return self.text(key) if key in self else default

    def flag(self, key: str) -> bool:
        value = self._get(key)
        if not isinstance(value, bool):
            raise self.error(key, f"is {_shown(value)}, not true or false")
        return value

    def flag_or(self, key: str, default: bool) -> bool:
        return self.flag(key) if key in self else default

    def texts(self, key: str) -> tuple[str, ...]:
        """An array of strings; empty when the key is not there."""
        value = self._get(key) if key in self else ()
        if not isinstance(value, tuple):
            raise self.error(key, f"is {_shown(value)}, not a list of texts")
        return value

    def numbers(self, key: str, kinds: str) -> np.ndarray:
        """An array of numbers whose numpy kind is one of `kinds` (b, i, u, f); empty when the key is not there."""
        value = self._get(key) if key in self else np.empty(0)
        if not isinstance(value, np.ndarray) or (value.size and value.dtype.kind not in kinds):
            raise self.error(key, f"is {_shown(value)}, not a list of the right numbers")
        return value

    def refuse_unasked(self, prefix: str, harmless: Iterable[str]) -> None:
        """Fails on a key under `prefix` that nobody read and that is not in `harmless` nor a part of one (`name.part`): the
        arithmetic may depend on it."""
        known = {prefix + name for name in harmless}
        for key in self._values:
            parts = [end for end, letter in enumerate(key) if letter == "."]
            if not key.startswith(prefix) or key in self._asked or not known.isdisjoint({key, *(key[:end] for end in parts)}):
                continue
            value = _shown(self._values[key])
            raise self.error(key, f"is {value} and not known; the model may compute what we do not", "Use another model")


def _shown(value: Value) -> str:
    text = f"a list of {len(value)}" if isinstance(value, tuple | np.ndarray) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
