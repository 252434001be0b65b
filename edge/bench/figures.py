"""The figures of one engine as `--json` prints them. Owns: the keys, which scripts read. Needs: measured, rates, work. Never: a
terminal, a clock."""

from __future__ import annotations

from typing import Any

from edge.bench.limit import Limit, least_seconds
from edge.bench.measure import Measured
from edge.bench.rates import KINDS, MachineRates
from edge.bench.work import Work


def engine_figures(measured: Measured, planned_bytes: int, decode: Work, prefill: Work, rates: MachineRates) -> dict[str, Any]:
    """Best of all rounds, and beside it the median. `decode` is the work of a token, `prefill` of the whole prompt."""
    first, took = measured.best(lambda row: row.first_token), measured.best(lambda row: row.decode)
    token = took / measured.decode_tokens
    overhead = measured.median(lambda row: row.decode - row.decode_engine) / measured.decode_tokens
    median_token = measured.median(lambda row: row.decode) / measured.decode_tokens
    decode_limit, prefill_limit = least_seconds(decode, rates), least_seconds(prefill, rates)
    weight_rate = decode.weight_bytes / token
    return {
        "prompt_tokens": measured.prompt_tokens,
        "decode_tokens": measured.decode_tokens,
        "rounds": len(measured.rounds),
        "ttft_s": first,
        "prefill_tokens_per_s": measured.prompt_tokens / first,
        "decode_tokens_per_s": 1 / token,
        "median": {
            "ttft_s": measured.median(lambda row: row.first_token),
            "prefill_tokens_per_s": measured.prompt_tokens / measured.median(lambda row: row.first_token),
            "decode_tokens_per_s": 1 / median_token,
        },
        "loop_overhead_ms_per_token": 1e3 * overhead,
        "loop_overhead_share": overhead / median_token,
        "peak_rss_bytes": measured.peak_rss_bytes,
        "planned_bytes": planned_bytes,
        "isa": rates.isa,
        "threads": rates.threads,
        "weight_bytes_per_token": decode.weight_bytes,
        "kv_bytes_per_token": round(decode.kv_bytes),
        "bytes_per_token": round(decode.bytes),
        "weight_gb_per_s": weight_rate / 1e9,
        "gb_per_s": decode.bytes / token / 1e9,
        "measured_gb_per_s": rates.bytes_per_s / 1e9,
        "bandwidth": {
            "buffer_bytes": rates.buffer_bytes,
            "streams_per_thread": rates.streams,
            "prefetch_bytes_ahead": rates.ahead_bytes,
        },
        "share_of_bandwidth": _share(weight_rate / rates.bytes_per_s),
        "dot_gops": {kind: rate / 1e9 for kind in KINDS if (rate := rates.of(kind)) is not None},
        "matrix_dot_product": rates.matrix_kind,
        "attention_dot_product": rates.attention_kind,
        "decode_limit": _limit_figures(decode_limit, decode, 1),
        "prefill_limit": _limit_figures(prefill_limit, prefill, measured.prompt_tokens),
        "share_of_decode_limit": _share(decode_limit.seconds / token),
        "share_of_prefill_limit": _share(prefill_limit.seconds / first),
        "logits_sha256": measured.logits_sha256,
    }


def _share(of_limit: float) -> float | None:
    """None where more was reached than was measured to be possible: the machine was busy when its limit was measured."""
    return of_limit if of_limit <= 1.0 else None


def _limit_figures(limit: Limit, work: Work, tokens: int) -> dict[str, Any]:
    return {
        "ms_per_token": 1e3 * limit.seconds / tokens,
        "tokens_per_s": tokens / limit.seconds,
        "bound_by": limit.bound_by,
        "bytes": round(work.bytes),
        "operations": round(work.operations),
    }
