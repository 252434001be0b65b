"""The least time of a given work on a machine of given rates."""

from __future__ import annotations

from dataclasses import replace

from edge.bench.limit import least_seconds
from edge.bench.rates import MachineRates
from edge.bench.work import Work

RATES = MachineRates(
    "avx512vnni", 2, 1 << 20, bytes_per_s=10.0, streams=1, ahead_bytes=0, int8=800.0, int8_scaled=400.0, int16=None, fp32=100.0,
    bf16=200.0,
)  # fmt: skip
WORK = Work(weight_bytes=40.0, kv_bytes=10.0, int8_operations=400.0, fp32_operations=50.0, attention_operations=100.0)


def test_the_slower_of_memory_and_dot_products_is_the_limit() -> None:
    assert least_seconds(WORK, RATES).seconds == 5.0
    assert least_seconds(WORK, RATES).bound_by == "memory"
    fast = replace(RATES, bytes_per_s=1000.0)
    assert least_seconds(WORK, fast).seconds == 400 / 400 + 50 / 100 + 100 / 200
    assert least_seconds(WORK, fast).bound_by == "dot products"


def test_quantised_matrices_count_with_their_scales_where_that_was_measured() -> None:
    fast = replace(RATES, bytes_per_s=1000.0)
    assert least_seconds(WORK, replace(fast, int8_scaled=None)).seconds == 400 / 800 + 50 / 100 + 100 / 200
    assert least_seconds(WORK, replace(fast, int16=400.0)).seconds == 400 / 400 + 50 / 100 + 100 / 400
    assert least_seconds(WORK, replace(fast, bf16=None)).seconds == 400 / 400 + 50 / 100 + 100 / 100


def test_without_rates_memory_alone_is_the_limit() -> None:
    none = replace(RATES, bytes_per_s=1000.0, int8=None, int8_scaled=None, int16=None, fp32=None, bf16=None)
    assert least_seconds(WORK, none).seconds == 50 / 1000
