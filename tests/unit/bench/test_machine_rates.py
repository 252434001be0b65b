"""What the machine does at best, measured by the native core: no figure is judged, only that there are figures."""

from __future__ import annotations

import pytest

from edge.bench.rates import measure_rates

pytestmark = pytest.mark.native
core = pytest.importorskip("edge._core", reason="needs the native core: pip install .")


@pytest.mark.parametrize("isa", core.instruction_sets())
def test_every_instruction_set_has_a_rate_for_what_its_kernels_multiply(isa: str) -> None:
    rates = measure_rates(isa, 1, 1 << 20)
    assert rates.int8 is not None and rates.fp32 is not None, "core/dot_rate.cpp lacks this instruction set"
    assert rates.bytes_per_s > 0 and rates.streams in (1, 2, 4, 8, 16)


def test_an_instruction_set_that_nobody_knows_has_no_dot_products() -> None:
    rates = measure_rates("abacus", 1, 1 << 20)
    assert (rates.matrix_kind, rates.attention_kind) == (None, None)
