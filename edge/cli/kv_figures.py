"""KV memory of an open runtime for people and for `--json`. Owns: the keys and words. Needs: a runtime's stats. Never: a
terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge.units import human_bytes

if TYPE_CHECKING:
    from edge.kv_budget import KvChoice
    from edge.pages.account import ZoneBytes
    from edge.runtime import Runtime


def kv_figures(runtime: Runtime, kv: KvChoice) -> dict[str, Any]:
    """Preset and policy, bytes of the pool, the most that was in use and in which formats, what the last request had when it
    ended, what was sealed, demoted and copied so far, and what the prefix cache holds and gave."""
    stats = runtime.stats
    return {
        "kv_preset": runtime.preset,
        "kv_policy": runtime.policy,
        "kv_budget_bytes": kv.budget_bytes,
        "kv_pool_bytes": stats.pool.pool_bytes,
        "kv_high_water_bytes": stats.pool.high_water_bytes,
        "kv_high_water_by_format": stats.pool.high_water_by_format,
        "kv_baked_bytes": stats.pool.baked_bytes,
        "kv_bytes_by_zone": stats.last_bytes_by_zone,
        "kv_table_bytes": stats.table_bytes,
        "kv_pages_sealed": stats.pages_sealed,
        "kv_pages_demoted": stats.pages_demoted,
        "kv_bytes_moved": stats.bytes_moved,
        "kv_bytes_copied": stats.bytes_copied,
        "kv_cached_bytes": stats.pool.cached_bytes,
        "kv_prefix_hits": stats.prefix_hits,
        "kv_prefix_hit_tokens": stats.prefix_hit_tokens,
        "kv_prefix_cuts": stats.prefix_cuts,
        "kv_pages_read": stats.pages_read,
        "kv_pages_skipped": stats.pages_skipped,
        "kv_probes": stats.probes,
        "kv_omitted": stats.omitted,
    }


def kv_words(runtime: Runtime, kv: KvChoice) -> str:
    """Preset and policy, the most that was in use, and what was demoted for it."""
    stats = runtime.stats
    demoted = f", {stats.pages_demoted:,} pages demoted" if stats.pages_demoted else ""
    return f"KV {kv.words}{',' if kv.raises else ''} {human_bytes(stats.pool.high_water_bytes)}{demoted}"


def kv_lines(kv_bytes: ZoneBytes) -> str:
    """A line for each zone, with its formats."""
    lines = []
    for zone, formats in kv_bytes.items():
        parts = ", ".join(f"{name} {human_bytes(size)}" for name, size in formats.items())
        lines.append(f"\nKV {zone:<12}{human_bytes(sum(formats.values())):>8}  {parts}")
    return "".join(lines)
