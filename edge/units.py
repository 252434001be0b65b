"""Bytes for people. Owns: how a size is written and read. Needs: nothing. Never: terminals."""

from __future__ import annotations

import re

_UNITS = {"": 1, "b": 1} | {
    f"{letter}{suffix}": base**power for power, letter in enumerate("kmgt", 1) for suffix, base in (("b", 1000), ("ib", 1024))
}


def parse_bytes(text: str) -> int:
    """A size as people write it: 64MB, 64 MB, 96MiB, 1.5GB, 67108864. ValueError where it is none; 64M is not: some mean
    decimal megabytes by it and some binary ones."""
    match = re.fullmatch(r"([0-9]{1,18}(?:[.][0-9]{1,9})?) *([A-Za-z]*)", text.strip())
    if match is None or (unit := _UNITS.get(match[2].lower())) is None:
        raise ValueError(f"{text!r} is not a size in bytes. Write it like 64MB, 96MiB or 67108864")
    return int(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit


def human_bytes(count: int) -> str:
    """Decimal units with one digit: what disks and downloads are sold in."""
    size, units = float(count), ["bytes", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.0f} {units[0]}" if units[0] == "bytes" else f"{size:.1f} {units[0]}"


def human_seconds(seconds: float) -> str:
    """`40 s`, `12 min` or `2 h 05 min`: an estimate has no more digits."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def planned_and_used(planned_bytes: int, peak_bytes: int | None) -> str:
    """Memory as planned and as used; None: the system does not tell the latter."""
    planned = f"planned {human_bytes(planned_bytes)}"
    return planned if peak_bytes is None else f"{planned}, used {human_bytes(peak_bytes)}"
