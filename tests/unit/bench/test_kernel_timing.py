"""Kernels timed alone by the native core: no figure is judged, only that every case runs on every instruction set."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edge.bench import kernels
from edge.bench.kernels import KernelCase, kernel_cases, measure_kernels

pytestmark = pytest.mark.native
core = pytest.importorskip("edge._core", reason="needs the native core: pip install .")

SMALL = 1 << 16  # bytes of weights or pages


def small_numbers(case: KernelCase) -> list[int]:
    """The case with little memory, few inputs and a short context."""
    short = replace(case, rows=min(case.rows, 20), context=min(case.context, 96))
    numbers = short.numbers()
    numbers[5], numbers[-1] = 80, SMALL
    return numbers


@pytest.mark.parametrize("isa", core.instruction_sets())
def test_every_case_runs_on_every_instruction_set(isa: str) -> None:
    for case in kernel_cases():
        seconds, count, operations = core.time_kernel(isa, small_numbers(case), 2, 0.0)
        assert seconds > 0 and count > 0, case
        assert (operations > 0) == (case.dot is not None), case


def test_bytes_and_operations_are_those_of_the_case() -> None:
    matrix = next(case for case in kernel_cases() if case.name == "int8, 8 rows")
    _, count, operations = core.time_kernel("plain", small_numbers(matrix), 1, 0.0)
    strip = 96 * 16 + 128  # 80 inputs padded to 96, a scale each 32, which start and end on 64 bytes
    outputs = count / strip * 16
    assert (count % strip, operations) == (0, 2 * outputs * 80 * 8)
    assert SMALL - strip < count <= SMALL
    decode = next(case for case in kernel_cases() if case.group == "attention" and case.rows == 1)
    _, count, operations = core.time_kernel("plain", small_numbers(decode), 1, 0.0)
    layer = 2 * 8 * 64 * 96 * 2  # K and V of 96 positions, 8 heads of 64
    assert (count % layer, operations) == (0, count / layer * 4 * 32 * 64 * 96)


@pytest.mark.parametrize(
    ("place", "value"),
    [(0, 9), (1, 0), (2, 0), (2, 9), (3, 7), (5, 0), (5, 1 << 30), (10, -1)],
)
def test_a_case_that_is_none_is_refused(place: int, value: int) -> None:
    numbers = small_numbers(kernel_cases()[0])
    numbers[place] = value
    with pytest.raises(ValueError):
        core.time_kernel("plain", numbers, 1, 0.0)


@pytest.mark.parametrize(("place", "value"), [(6, 0), (6, 30), (7, 0), (8, 63), (9, 0)])
def test_heads_that_make_no_attention_are_refused(place: int, value: int) -> None:
    numbers = small_numbers(kernel_cases()[-1])
    numbers[place] = value
    with pytest.raises(ValueError):
        core.time_kernel("plain", numbers, 1, 0.0)


def test_each_share_is_of_the_limit_of_its_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "BEYOND_CACHE", 1 << 20)
    monkeypatch.setattr(kernels, "_SECONDS", 0.0)
    found = [figures for _, figures in measure_kernels([core.best_instruction_set()], 1)]
    assert len(found) == len(kernel_cases())
    assert {figures.case.group for figures in found if figures.share_of_limit is None} == {"rows"}
    assert all(figures.gb_per_s > 0 for figures in found)
