"""The CPU engine's roundings in NumPy are those of the native core, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.packing import pack
from calibration.schemes import QuantTensor
from edge.executors.cpu_plan import PlanTensor

pytest.importorskip("onnx", reason="needs the build extra: onnx")

from engines.reference.cpu_roundings import STEP, half_pages, int8_rows

WIDTH = 80  # two whole steps and a half


@pytest.mark.native
def test_int8_rows_are_what_the_core_multiplies_with() -> None:
    core = pytest.importorskip("edge._core", reason="needs the native core: pip install .")
    rng = np.random.default_rng(0)
    x = (10.0 ** rng.integers(-6, 6, (40, 1)) * rng.standard_normal((40, WIDTH))).astype(np.float32)
    x[3], x[4, :STEP], x[5] = 0, 1e-38, np.arange(WIDTH) - 127 / 2
    x[5, ::STEP] = 127  # a scale of 1, and every number a tie
    quants = np.full((WIDTH, WIDTH + STEP - WIDTH % STEP), 128, np.uint8)
    quants[np.arange(WIDTH), np.arange(WIDTH)] += 1  # the identity
    matrix = QuantTensor(8, 32, quants, np.ones((WIDTH, quants.shape[1] // 32), np.float16), None)
    packed, _ = pack(matrix)
    y = np.empty_like(x)
    core.matmul("plain", packed, PlanTensor("w", "int8", WIDTH, WIDTH, 32, False, 0, packed.size).record(), x, y)
    assert np.array_equal(y, int8_rows(x))
    assert 1e-3 < np.abs(y / np.where(x, x, 1) - (x != 0))[6:].mean() < 0.1  # something was rounded


def test_pages_are_fp16_and_saturate() -> None:
    found = half_pages(np.array([1e9, -1e9, 1 + 2.0**-12, 0.5], np.float32))
    assert found.tolist() == [65504.0, -65504.0, 1.0, 0.5]
