"""Logits that are not finite: whose they are decides what a user should do."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.tiers import load_tier
from edge.comparison import Comparison
from edge.errors import BuildError
from engines.verdict import Measured, Role


def compared(first: float, second: float) -> Comparison:
    """Rows of logits against others, in each of which one is as given."""
    found, rows = Comparison(), np.random.default_rng(0).normal(size=(4, 16)).astype(np.float32)
    left, right = rows.copy(), rows.copy()
    left[1, 3], right[1, 3] = first, second
    with np.errstate(invalid="ignore"):
        found.add(left, right, np.zeros(3, np.int64))
    return found


def overflow(tested: Comparison, tier: Comparison, role: Role) -> str:
    with pytest.raises(BuildError) as caught:
        Measured(tested, tier, ((1, 2, 3, 4),), {}, ()).verdicts(load_tier("int8"), role)
    return str(caught.value)


@pytest.mark.parametrize(("role", "advice"), [("engine", "--tier fp16"), ("graph", "--target cpu")])
def test_an_overflow_of_what_is_tested_alone_is_not_the_fault_of_the_source(role: Role, advice: str) -> None:
    message = overflow(compared(1.0, np.inf), compared(1.0, 1.0), role)
    assert f"verdict of the {role}: its logits overflow" in message and advice in message
    assert "damaged" not in message


@pytest.mark.parametrize("role", ["engine", "graph"])
def test_an_overflow_of_the_weights_themselves_is(role: Role) -> None:
    message = overflow(compared(np.inf, np.inf), compared(np.inf, np.inf), role)
    assert "The source's weights are damaged: fetch the model again" in message
