"""What `edge bench compare` prints without --json. Owns: the rows. Needs: comparisons. Never: measures."""

from __future__ import annotations

from collections.abc import Sequence

from edge.bench.comparison import RATIOS, Comparison, Row
from edge.cli.tables import format_table

_HEADS = ("engine", "prefill tok/s", "(median)", "decode tok/s", "(median)", "first s", "load s", "memory MB",
          "ours: prefill", "decode", "memory")  # fmt: skip


def comparison_text(comparisons: Sequence[Comparison], title: str) -> str:
    """A table for each load, and a line for each engine that was not measured."""
    parts = [title]
    for comparison in comparisons:
        parts.append(f"\nprompt {comparison.prompt_tokens}, decode {comparison.decode_tokens}")
        rows = [list(_HEADS), *(_cells(comparison, row) for row in comparison.rows)]
        parts.append(format_table(rows, right=frozenset(range(1, len(_HEADS)))))
        parts += [_failure(row) for row in comparison.rows if row.failure is not None]
    return "\n".join(parts)


def _cells(comparison: Comparison, row: Row) -> list[str]:
    memory = row.best("peak_rss_bytes")
    return [
        row.contender.name,
        _number(row.best("prefill_tokens_per_s"), 0),
        _number(row.median("prefill_tokens_per_s"), 0),
        _number(row.best("decode_tokens_per_s"), 1),
        _number(row.median("decode_tokens_per_s"), 1),
        _number(row.best("ttft_s"), 3),
        _number(row.best("load_s"), 2),
        _number(None if memory is None else memory / 1e6, 0),
        *(("" for _ in RATIOS) if row is comparison.ours else (_ratio(comparison.ratio(row, key)) for key in RATIOS)),
    ]


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} x"


def _failure(row: Row) -> str:
    kept = f" after {len(row.runs)} good runs" if row.runs else ""
    mend = f". Install it: {row.mend}" if row.mend else ""
    return f"{row.contender.name}: failed{kept}: {row.failure}{mend}"
