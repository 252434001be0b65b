"""Scales of static int8 inputs."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.activations import TokenMaxima


def _observed(*runs: list[float]) -> TokenMaxima:
    maxima = TokenMaxima()
    for run in runs:
        maxima.add(np.array([run]))
    return maxima


def test_the_whole_share_covers_the_largest_row() -> None:
    assert _observed([1.0, 127.0], [3.0]).scale(1.0) == pytest.approx(1.0)


def test_a_smaller_share_leaves_the_largest_rows_clipped() -> None:
    maxima = _observed([1.0] * 99, [127.0])
    assert maxima.tokens == 100
    assert maxima.scale(0.9) == pytest.approx(1.0 / 127)


def test_an_input_that_is_always_0_gets_a_scale_that_float16_holds() -> None:
    assert np.float16(_observed([0.0, 0.0]).scale(1.0)) > 0


def test_nothing_observed_has_no_scale() -> None:
    with pytest.raises(ValueError, match="nothing was observed"):
        TokenMaxima().scale(1.0)
