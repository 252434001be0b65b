"""What a signal found. Owns: Found. Needs: numpy. Never: weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Found:
    """Places of one signal, ascending, at most one at a character."""

    positions: np.ndarray  # int64 [places], the first character
    ends: np.ndarray  # int64 [places], behind the last character of the heading
    levels: np.ndarray  # int8 [places], 1 (a title) to signals.DEEPEST

    def __len__(self) -> int:
        return len(self.positions)


def found_places(
    positions: Sequence[int] | np.ndarray, ends: Sequence[int] | np.ndarray, levels: Sequence[int] | np.ndarray
) -> Found:
    """Found of places in any order; of several at one character the first counts."""
    at = np.asarray(positions, np.int64)
    at, order = np.unique(at, return_index=True)
    return Found(at, np.asarray(ends, np.int64)[order], np.asarray(levels, np.int8)[order])


def merged(*places: np.ndarray) -> np.ndarray:
    """All values, ascending, each once. As np.unique, whose hashing takes seconds for some millions of equal values."""
    values = np.sort(np.concatenate(places).astype(np.int64), kind="stable")
    distinct: np.ndarray = values[np.append(True, values[1:] != values[:-1])[: len(values)]]
    return distinct


NOTHING = found_places((), (), ())
