"""What `edge bench` prints without --json. Owns: the rows. Needs: figures by their JSON keys. Never: measures."""

from __future__ import annotations

from typing import Any

from edge.cli.tables import format_table
from edge.units import human_bytes

_DOT_WORDS = {"int8": "int8", "int8_scaled": "int8 with scales", "int16": "int16", "fp32": "fp32", "bf16": "bf16"}


def figures_table(figures: dict[str, Any]) -> str:
    """Speeds with their shares of the limit, then what the limit is made of."""
    peak, median = figures["peak_rss_bytes"], figures["median"]
    several = figures["rounds"] > 1
    rows = [
        ["prefill", f"{figures['prefill_tokens_per_s']:.0f} tokens/s", _share(figures, "prefill"),
         f"{figures['prompt_tokens']} tokens in {figures['ttft_s']:.3f} s"
         + (f", median {median['prefill_tokens_per_s']:.0f} tokens/s" if several else "")],
        ["decode", f"{figures['decode_tokens_per_s']:.1f} tokens/s", _share(figures, "decode"),
         f"{figures['decode_tokens']} tokens" + (f", median {median['decode_tokens_per_s']:.1f} tokens/s" if several else "")],
        ["read", f"{figures['gb_per_s']:.1f} GB/s", _share_read(figures),
         f"a token: {human_bytes(figures['weight_bytes_per_token'])} of weights, "
         f"{human_bytes(figures['kv_bytes_per_token'])} of keys and values"],
        ["bandwidth", f"{figures['measured_gb_per_s']:.1f} GB/s", _streams(figures["bandwidth"]),
         f"{human_bytes(figures['bandwidth']['buffer_bytes'])} read"],
        ["dot products", _rate(figures, figures["matrix_dot_product"]), _products(figures), _other_products(figures)],
        ["loop", f"{figures['loop_overhead_ms_per_token']:.3f} ms a token",
         f"{100 * figures['loop_overhead_share']:.1f} % of a token outside the engine", ""],
        ["memory", human_bytes(peak) if peak else "not known here", f"planned {human_bytes(figures['planned_bytes'])}", ""],
        ["KV memory", human_bytes(figures["kv_high_water_bytes"]), f"preset {figures['kv_preset']}",
         f"{_formats(figures)} of a pool of {human_bytes(figures['kv_pool_bytes'])}; {figures['kv_pages_sealed']} pages "
         f"sealed, {human_bytes(figures['kv_bytes_copied'])} copied"],
        *_reads(figures),
        ["load", f"{figures['load_s']:.2f} s", "", ""],
        ["runs on", figures["isa"], f"{figures['threads']} threads", ""],
        ["logits", figures["logits_sha256"][:16], f"edge-zero {figures['version']} {figures['commit'] or ''}".strip(), ""],
    ]  # fmt: skip
    return format_table(rows)


def _reads(figures: dict[str, Any]) -> list[list[str]]:
    """What tokens left out, where they were to."""
    if not figures["kv_probes"]:
        return []
    skipped, all_pages = figures["kv_pages_skipped"], figures["kv_pages_read"] + figures["kv_pages_skipped"]
    share = f"{100 * skipped / all_pages:.0f} %" if all_pages else "none"
    left_out = f"{100 * figures['kv_omitted']:.1f} % of attention by {figures['kv_probes']} probes"
    return [["KV skipped", share, f"{skipped} pages", left_out]]


def _formats(figures: dict[str, Any]) -> str:
    """Bytes in each format when they were the most."""
    return ", ".join(f"{name} {human_bytes(size)}" for name, size in figures["kv_high_water_by_format"].items())


def _share(figures: dict[str, Any], phase: str) -> str:
    limit, share = figures[f"{phase}_limit"], figures[f"share_of_{phase}_limit"]
    if share is None:
        measured, reached = limit["tokens_per_s"], figures[f"{phase}_tokens_per_s"]
        return f"limit unknown: the machine was busy ({_below(measured, reached, 'tokens/s')}); run again when quiet"
    return f"{100 * share:.0f} % of the limit, {limit['tokens_per_s']:.0f} tokens/s by {limit['bound_by']}"


def _share_read(figures: dict[str, Any]) -> str:
    reached, measured = figures["gb_per_s"], figures["measured_gb_per_s"]
    if reached > measured:
        return f"bandwidth unknown: the machine was busy ({_below(measured, reached, 'GB/s')})"
    return f"{100 * reached / measured:.0f} % of the {measured:.1f} GB/s measured here"


def _below(measured: float, reached: float, unit: str) -> str:
    return f"measured {measured:.1f} below reached {reached:.1f} {unit}"


def _streams(bandwidth: dict[str, Any]) -> str:
    streams, ahead = bandwidth["streams_per_thread"], bandwidth["prefetch_bytes_ahead"]
    prefetch = f"prefetch {ahead} bytes ahead" if ahead else "no prefetch"
    return f"best with {streams} {'stream' if streams == 1 else 'streams'} a thread, {prefetch}"


def _rate(figures: dict[str, Any], kind: str | None) -> str:
    return "not measured" if kind is None else f"{figures['dot_gops'][kind]:.0f} GOPS"


def _products(figures: dict[str, Any]) -> str:
    """The dot products that the limit counts with."""
    matrix, attention = figures["matrix_dot_product"], figures["attention_dot_product"]
    if matrix is None or attention is None:
        return f"{figures['isa']} has no measured rate: the limit counts bytes alone"
    return f"{_DOT_WORDS[matrix]}; attention {_DOT_WORDS[attention]} {_rate(figures, attention)}"


def _other_products(figures: dict[str, Any]) -> str:
    used = (figures["matrix_dot_product"], figures["attention_dot_product"])
    rest = [f"{_DOT_WORDS[kind]} {rate:.0f}" for kind, rate in figures["dot_gops"].items() if kind not in used]
    return f"beside them: {', '.join(rest)}" if rest else ""
