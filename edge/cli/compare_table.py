"""What `edge bench compare` prints without --json. Owns: the rows. Needs: comparisons. Never: measures."""

from __future__ import annotations

from collections.abc import Sequence

from edge.bench.comparison import RATIOS, Comparison, Row
from edge.cli.tables import format_table

_HEADS = ("engine", "prefill tok/s", "(median)", "decode tok/s", "(median)", "first s", "load s", "memory MB",
          "ours: prefill", "decode", "memory")  # fmt: skip


def comparison_text(comparisons: Sequence[Comparison], title: str) -> str:
    """A table for each load, then a line for each reason why engines were not measured."""
    parts = [title]
    for comparison in comparisons:
        parts.append(f"\nprompt {comparison.prompt_tokens}, decode {comparison.decode_tokens}")
        rows = [list(_HEADS), *(_cells(comparison, row) for row in comparison.rows)]
        parts.append(format_table(rows, right=frozenset(range(1, len(_HEADS)))))
    parts += _failures(comparisons)
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


def _failures(comparisons: Sequence[Comparison]) -> list[str]:
    """Settings of one engine mostly fail alike, and at every prompt: one line names them all."""
    said: dict[str, list[tuple[str, int]]] = {}
    for comparison in comparisons:
        for row in comparison.rows:
            if row.failure is not None:
                said.setdefault(_reason(row), []).append((row.contender.name, comparison.prompt_tokens))
    lines = []
    for reason, where in said.items():
        names = ", ".join(dict.fromkeys(name for name, _ in where))
        prompts = list(dict.fromkeys(prompt for _, prompt in where))
        at = "" if len(prompts) == len(comparisons) else f" (prompt {', '.join(map(str, prompts))})"
        lines.append(f"{names}{at}: failed{reason}")
    return lines


def _reason(row: Row) -> str:
    kept = f" after {len(row.runs)} good runs" if row.runs else ""
    mend = f". Install it: {row.mend}" if row.mend else ""
    return f"{kept}: {row.failure}{mend}"
