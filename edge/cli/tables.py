"""Aligned columns on stdout. Owns: widths. Needs: nothing. Never: colour or control characters, so that terminals, pipes and
logs read the same."""

from __future__ import annotations

from collections.abc import Sequence

from edge.cli.screen import shown


def format_table(rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> str:
    """`rows` of equal length as lines; columns in `right` are aligned to the right. No spaces at line ends."""
    rows = [[shown(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
