"""Aligned columns on stdout. Owns: widths. Needs: nothing. Never: colour, so that pipes and logs read the same."""

from __future__ import annotations

from collections.abc import Sequence


def format_table(rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> str:
    """`rows` of equal length as lines; columns in `right` are aligned to the right. No spaces at line ends."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
