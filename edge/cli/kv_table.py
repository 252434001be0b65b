"""Figures of `edge bench kv` for a terminal of 80 columns. Owns: the tables. Needs: figures. Never: measures."""

from __future__ import annotations

from edge.bench.kv import LEAST_CLAIM, KvFigures, PresetFigures
from edge.cli.tables import format_table
from edge.comparison import Comparison
from edge.contract import PAGE_FORMATS
from edge.units import human_bytes


def kv_tables(figures: KvFigures) -> str:
    """Memory and speed, then quality and gates, each a line a preset; what failed is said below."""
    parts = [_sources(figures), _memory(figures), _quality(figures)]
    if figures.reads:
        parts.append(_reads(figures))
    failed = ["\n    ".join([f"{row.preset} failed its gate:", *row.broken]) for row in figures.presets if row.passed is False]
    if failed:
        parts.append("\n".join(failed))
    if not figures.is_claim:
        parts.append(f"Too little for a claim: {LEAST_CLAIM:,} positions of several documents (--tokens, --text)")
    return "\n\n".join(parts)


def _sources(figures: KvFigures) -> str:
    names = {name: figures.documents.count(name) for name in figures.documents}
    texts = ", ".join(f"{count} of {name}" for name, count in names.items())
    return (
        f"documents of {figures.load.context:,} tokens: {texts}\n"
        f"{figures.rows:,} positions compared at their ends, kernels {figures.isa}"
    )


def _memory(figures: KvFigures) -> str:
    formats = [name for name in PAGE_FORMATS if any(name in row.likeness.kv_bytes for row in figures.presets)]
    rows = [["MB of KV", *formats, "table", "all", "smaller", "prefill", "decode"]]
    for row in figures.presets:
        held = row.likeness.kv_bytes
        rows.append(
            [
                row.preset,
                *(_mega(held[name]) if name in held else "" for name in formats),
                _mega(row.table_bytes),
                _mega(row.held_bytes),
                f"{row.smaller:.2f}x",
                _rate(row.likeness.prefill_rate),
                _rate(row.likeness.decode_rate),
            ]
        )
    whole = human_bytes(figures.presets[0].open_bytes)
    note = f"at a document's end; fp16 pages of all layers: {whole}; tokens/s, decode there"
    return f"{format_table(rows, right=frozenset(range(1, len(rows[0]))))}\n{note}"


def _quality(figures: KvFigures) -> str:
    asked = figures.presets[0].recall is not None
    rows = [["against exact", "KL", "KL max", "top-1", "ppl", *(["needles", "chains"] if asked else []), "gate"]]
    for row in figures.presets:
        rows.append(_quality_row(row))
        if row.verdict is None:
            rows.append(["  floor", *_likeness(figures.floor), *(["", ""] if asked else []), ""])
    note = "floor: exact, last bits of fp16 flipped where presets seal; gates count from it"
    return f"{format_table(rows, right=frozenset(range(1, len(rows[0]) - 1)))}\n{note}"


def _reads(figures: KvFigures) -> str:
    asked = figures.reads[0].recall is not None
    rows = [["fewer pages", "KL", "top-1", *(["needles", "chains"] if asked else []), "read", "omitted", "decode"]]
    for row in figures.reads:
        found, share, omitted = row.likeness.comparison, row.read_share, row.reads.mean_omitted
        recall = [] if row.recall is None else [_share(row.recall.needles), _share(row.recall.chains)]
        pages = "all" if share is None else f"{100 * share:.0f} %"
        left_out = "" if omitted is None else f"{100 * omitted:.1f} %"
        decode = _rate(row.likeness.decode_rate)
        rows.append([row.preset, f"{found.kl_mean:.5f}", f"{found.top1:.4f}", *recall, pages, left_out, decode])
    note = f"--read-budget {figures.load.budget}: sealed pages read, attention left out"
    return f"{format_table(rows, right=frozenset(range(1, len(rows[0]))))}\n{note}"


def _quality_row(row: PresetFigures) -> list[str]:
    likeness = ["0", "0", "1", "x1"] if row.verdict is None else _likeness(row.likeness.comparison)
    recall = [] if row.recall is None else [_share(row.recall.needles), _share(row.recall.chains)]
    gate = {None: "", True: "passed", False: "FAILED"}[row.passed]
    return [row.preset, *likeness, *recall, gate]


def _likeness(found: Comparison) -> list[str]:
    return [f"{found.kl_mean:.5f}", f"{found.kl_max:.3f}", f"{found.top1:.4f}", f"x{found.perplexity_ratio:.4f}"]


def _share(counts: tuple[int, int]) -> str:
    return f"{counts[0]}/{counts[1]}"


def _mega(size: int) -> str:
    return f"{size / 1e6:.1f}" if size >= 50_000 else f"{size / 1e6:.3f}"


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.1f}" if rate < 1000 else f"{rate:,.0f}"
