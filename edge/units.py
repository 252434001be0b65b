"""Bytes for people. Owns: how a size is written. Needs: nothing. Never: terminals."""

from __future__ import annotations


def human_bytes(count: int) -> str:
    """Decimal units with one digit: what disks and downloads are sold in."""
    size, units = float(count), ["bytes", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.0f} {units[0]}" if units[0] == "bytes" else f"{size:.1f} {units[0]}"


def planned_and_used(planned_bytes: int, peak_bytes: int | None) -> str:
    """Memory as planned and as used; None: the system does not tell the latter."""
    planned = f"planned {human_bytes(planned_bytes)}"
    return planned if peak_bytes is None else f"{planned}, used {human_bytes(peak_bytes)}"
