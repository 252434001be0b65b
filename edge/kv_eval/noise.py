"""What chance can do to a difference. Owns: the sign test of needles, the error of a difference of KL. Needs: numpy. Never:
which of two is better."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, sqrt

import numpy as np

UNLIKELY = 0.05  # chances below it are taken for no chance


@dataclass(frozen=True, slots=True)
class Paired:
    """Of the same cases, those that only one of two found."""

    lost: int  # that the first found
    gained: int  # that the second found

    @property
    def chance(self) -> float:
        """Of at least as many lost ones, were each as likely lost as gained: the sign test, one-sided (Dixon and Mood 1946)."""
        count = self.lost + self.gained
        return sum(comb(count, lost) for lost in range(self.lost, count + 1)) / 2**count

    @property
    def is_loss(self) -> bool:
        """Whether fewer were found than chance explains."""
        return self.lost > self.gained and self.chance < UNLIKELY


@dataclass(frozen=True, slots=True)
class Blocks:
    """Sums of KL over stretches of text, and their rows: neighbours are alike, stretches much less."""

    sums: tuple[float, ...]
    rows: tuple[int, ...]

    @property
    def mean(self) -> float:
        """Nats a row."""
        return sum(self.sums) / sum(self.rows)


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean KL of one form less that of another on the same rows."""

    mean: float  # nats a row; below 0 the first loses less
    error: float | None  # the standard error of that, from stretch to stretch; None for a single one


def difference(first: Blocks, second: Blocks) -> Difference:
    """A ratio estimate over clusters of unequal size (Cochran 1977, 9A.1): the deviations of each from the common mean."""
    assert first.rows == second.rows
    rows = np.asarray(first.rows, np.float64)
    gaps = np.asarray(first.sums) - np.asarray(second.sums)
    mean = float(gaps.sum() / rows.sum())
    count = len(rows)
    if count < 2:
        return Difference(mean, None)
    spread = float(((gaps - mean * rows) ** 2).sum())
    return Difference(mean, sqrt(spread * count / (count - 1)) / float(rows.sum()))
