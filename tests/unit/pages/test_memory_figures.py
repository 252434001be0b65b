"""KV memory of the two models at their last token, as the pool counts it: `pytest -s` on this file prints the table."""

from __future__ import annotations

from collections import Counter

import pytest
from page_models import GEMMA, SMOL

from edge.contract import SEAL_TOKENS
from edge.pages.fit import fit_pool
from edge.pages.geometry import GroupPages, page_groups, pages_for, table_bytes
from edge.pages.pool import Pool
from edge.pages.pool_counts import PoolCounts
from edge.pages.sequence import SequencePages
from edge.presets import PRESETS, PresetName
from edge.spec import ModelSpec

WANTED = {("smol", "safe"): 2.1, ("smol", "balanced"): 2.9, ("gemma", "safe"): 6.4, ("gemma", "balanced"): 7.8}


def walk(groups: tuple[GroupPages, ...], pool: Pool, tokens: int) -> SequencePages:
    """A prompt of all but the last 100 tokens in chunks, the rest one by one."""
    pages = SequencePages(pool, groups, pages_for(tokens))
    while pages.length < tokens:
        border = (pages.length // SEAL_TOKENS + 1) * SEAL_TOKENS
        end = min(tokens - 100, border) if pages.length < tokens - 100 else pages.length + 1
        with pool.reserve(pages.step_extents(end)) as lease:
            words, _ = pages.place(end, lease)
            lease.commit()
        pages.commit(words, end)
    return pages


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(("spec", "tokens"), [(SMOL, 8191), (GEMMA, 4095)], ids=["smol", "gemma"])
def test_pages_slack_and_tables_are_as_small_as_the_issue_asks_for(spec: ModelSpec, tokens: int, preset: PresetName) -> None:
    groups = page_groups(spec, PRESETS[preset])
    size = fit_pool(groups, tokens + 1, 1, 2 << 20)
    pool = Pool(size)
    pages = walk(groups, pool, tokens)
    counts: PoolCounts = pool.counts()
    pool.check(pages.extents())
    tables = table_bytes(groups, pages_for(tokens + 1))
    all_fp16 = sum(group.open.bytes for group in page_groups(spec, PRESETS["exact"])) * pages_for(tokens)
    account = counts.used_bytes + counts.slack_bytes + tables
    slabs = counts.pool_bytes - pool.room(groups).free_slabs * size.slab_bytes
    print(
        f"\n{spec.name:6} {preset:9} t={tokens}: fp16 of all layers {all_fp16 / 1e6:.2f} MB; "
        f"pages {counts.used_bytes / 1e6:.2f}, "
        f"slab ends {counts.slack_bytes / 1e6:.2f}, tables {tables / 1e6:.3f} MB: {all_fp16 / account:.2f}x smaller; "
        f"slabs in use {slabs / 1e6:.2f} MB ({all_fp16 / slabs:.2f}x), fitted pool {size.pool_bytes / 1e6:.2f} MB "
        f"({all_fp16 / size.pool_bytes:.2f}x), most in use {counts.high_water_bytes / 1e6:.2f} MB"
    )
    assert all_fp16 / account >= WANTED.get((spec.name, preset), 0.99)
    assert counts.high_water_bytes <= counts.pool_bytes == counts.used_bytes + counts.free_bytes + counts.slack_bytes
    pages.release()
    pool.check(Counter())
