"""Small constants of a graph, kept inside it. Owns: HasConstants, their names. Needs: numpy. Never: weights."""

from __future__ import annotations

import numpy as np


class HasConstants:
    """What a graph that holds `constants` by name can do with them."""

    __slots__ = ()

    constants: dict[str, np.ndarray]

    def constant(self, name: str, values: np.ndarray) -> str:
        """Adds a constant and returns its name; one name may be asked for again with the same values."""
        known = self.constants.setdefault(name, values)
        assert np.array_equal(known, values), name
        return name

    def ints(self, *values: int) -> str:
        """An int64 vector, named by what it holds: shapes, axes, pads."""
        return self.constant("ints." + "_".join(str(v) for v in values), np.array(values, np.int64))

    def scalar(self, name: str, value: float, dtype: str) -> str:
        """A constant of one value."""
        return self.constant(name, np.array(value, dtype))
