"""KV memory of an open runtime for `--json`. Owns: the keys. Needs: a runtime's stats. Never: a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edge.kv_budget import KvChoice
    from edge.runtime import Runtime


def kv_figures(runtime: Runtime, kv: KvChoice) -> dict[str, Any]:
    """Preset, bytes of the pool, the most that was in use and in which formats, what was sealed and copied so far, and
    what the prefix cache holds and gave."""
    stats = runtime.stats
    return {
        "kv_preset": runtime.preset,
        "kv_budget_bytes": kv.budget_bytes,
        "kv_pool_bytes": stats.pool.pool_bytes,
        "kv_high_water_bytes": stats.pool.high_water_bytes,
        "kv_high_water_by_format": stats.pool.high_water_by_format,
        "kv_baked_bytes": stats.pool.baked_bytes,
        "kv_table_bytes": stats.table_bytes,
        "kv_pages_sealed": stats.pages_sealed,
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
