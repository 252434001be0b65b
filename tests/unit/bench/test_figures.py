"""What is said where the machine was busy when its limit was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edge.bench.figures import engine_figures
from edge.bench.measure import Measured, Round
from edge.bench.rates import MachineRates
from edge.bench.work import Work
from edge.cli.bench_table import figures_table

RATES = MachineRates(
    "avx2", 2, 1 << 20, bytes_per_s=1e9, streams=1, ahead_bytes=0, int8=None, int8_scaled=4e9, int16=2e9, fp32=1e9, bf16=None
)  # fmt: skip
WORK = Work(weight_bytes=1e7, kv_bytes=1e6, int8_operations=1e7, fp32_operations=0.0, attention_operations=1e6)
MEASURED = Measured(100, 10, (Round(0.4, 0.2, 0.19),), 10**8, "0" * 64)
KV = {
    "kv_preset": "safe", "kv_high_water_bytes": 1, "kv_pool_bytes": 1, "kv_pages_sealed": 0, "kv_bytes_copied": 0,
    "kv_high_water_by_format": {}, "kv_probes": 0, "load_s": 0.1, "version": "1", "commit": None,
}  # fmt: skip


@pytest.mark.parametrize("speed", [1.0, 0.4])
def test_a_limit_below_what_was_reached_is_called_unknown(speed: float) -> None:
    rates = replace(RATES, bytes_per_s=speed * 1e9)
    figures = engine_figures(MEASURED, 10**8, WORK, replace(WORK, int8_operations=1e9), rates)
    decode, _ = figures["share_of_decode_limit"], figures["share_of_prefill_limit"]
    lines = figures_table(figures | KV).splitlines()
    if speed == 1.0:  # 11 MB a token take 11 ms, one took 20
        assert decode == pytest.approx(0.55)
        assert "55 % of the limit, 91 tokens/s by memory" in lines[1] and "55 % of the 1.0 GB/s" in lines[2]
        return
    assert decode is None
    said = "the machine was busy (measured 36.4 below reached 50.0 tokens/s); run again when quiet"
    assert f"limit unknown: {said}" in lines[1]
    assert "bandwidth unknown: the machine was busy (measured 0.4 below reached 0.6 GB/s)" in lines[2]
    assert "63 % of the limit" in lines[0], "the prompt is bound by dot products, which were measured"
