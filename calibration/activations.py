"""How large activations get. Owns: TokenMaxima, the scale of a static int8 input. Needs: numpy. Never: graphs, texts.

A static scale must be chosen before a token is seen: too small a one clips, too large a one rounds all others coarsely. What is
kept of a text is the largest magnitude in each token's row, from which any rule can be tried: 4 bytes a token and input.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

_LEVELS = 127  # of a symmetric int8


@dataclass(slots=True)
class TokenMaxima:
    """The largest magnitude of each observed row of one input."""

    runs: list[np.ndarray] = field(default_factory=list)  # float32 [tokens] each

    def add(self, maxima: np.ndarray) -> None:
        """Rows that were observed: the largest magnitude of each."""
        self.runs.append(np.asarray(maxima, np.float32).reshape(-1))

    @property
    def tokens(self) -> int:
        return sum(len(run) for run in self.runs)

    def scale(self, share: float) -> float:
        """The int8 scale that clips nothing in this share of the rows (1.0: in none); over 0."""
        if not self.runs:
            raise ValueError("nothing was observed")
        largest = float(np.quantile(np.concatenate(self.runs), share))
        # float16's smallest normal number: an input that is always 0 may have any scale.
        return max(largest / _LEVELS, float(np.finfo(np.float16).smallest_normal))
