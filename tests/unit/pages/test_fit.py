"""How large pools are, and what fits into one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from page_models import GEMMA, SMOL, make_spec

from edge.errors import BudgetError
from edge.pages.fit import (
    PoolSize,
    bytes_needed,
    cut_pool,
    fit_pool,
    longest_context,
    peak_extents,
    pool_holds,
    slab_bytes_for,
    slabs_for,
)
from edge.pages.geometry import bytes_of, page_groups
from edge.presets import PRESETS, PresetName
from edge.spec import ModelSpec
from edge.units import human_bytes

MIB = 1 << 20


def longest(spec: ModelSpec, preset: PresetName, pool_bytes: int) -> int:
    groups = page_groups(spec, PRESETS[preset])
    size = cut_pool(groups, pool_bytes, 2 * MIB)
    assert size.pool_bytes <= pool_bytes
    return longest_context(lambda tokens: pool_holds(groups, size, tokens), 1 << 20) or 0


def test_the_slabs_of_both_models_leave_nothing_unused() -> None:
    for spec in (SMOL, GEMMA):
        extents = peak_extents(page_groups(spec, PRESETS["exact"]), 8192, 8)
        slab = slab_bytes_for(extents, 2 * MIB)
        assert MIB <= slab <= 2 * MIB
        assert slabs_for(extents, slab) * slab < 1.03 * bytes_of(extents)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(("spec", "context"), [(SMOL, 8192), (SMOL, 2048), (GEMMA, 4096), (GEMMA, 32768)])
def test_a_fitted_pool_is_a_few_percent_above_its_pages(spec: ModelSpec, context: int, preset: PresetName) -> None:
    groups = page_groups(spec, PRESETS[preset])
    size = fit_pool(groups, context, 1, 2 * MIB)
    assert pool_holds(groups, size, context) and size.pool_bytes < 1.12 * bytes_of(peak_extents(groups, context, 1))


def test_a_small_pool_takes_small_slabs() -> None:
    groups = page_groups(GEMMA, PRESETS["exact"])
    needed = sum(group.open.bytes * 8 for group in groups)
    assert fit_pool(groups, 256, 1, 2 * MIB).pool_bytes < needed * 1.1


@settings(deadline=None)
@given(
    windows=st.lists(st.sampled_from([0, 8, 40, 128, 200]), min_size=1, max_size=5),
    heads=st.integers(1, 3),
    pool=st.integers(1 << 16, 1 << 26),
    slab=st.sampled_from([1 << 16, 1 << 19, 2 << 20]),
    preset=st.sampled_from(list(PRESETS)),
)
def test_a_cut_pool_is_whole_slabs_that_take_every_extent(
    windows: list[int], heads: int, pool: int, slab: int, preset: PresetName
) -> None:
    groups = page_groups(make_spec(tuple(windows), num_kv_heads=heads, head_dim=64), PRESETS[preset])
    needed = fit_pool(groups, 1, 1, slab).pool_bytes
    if pool < needed:
        with pytest.raises(BudgetError, match=f"one page of each layer group needs {human_bytes(needed)}"):
            cut_pool(groups, pool, slab)
        return
    size = cut_pool(groups, pool, slab)
    assert size.pool_bytes % size.slab_bytes == 0 and 0 < size.pool_bytes <= pool
    assert pool_holds(groups, size, 1)
    assert all(kind.bytes <= size.slab_bytes for kind in peak_extents(groups, 600, 1) if pool_holds(groups, size, 600))


def test_a_budget_holds_more_tokens_the_smaller_the_preset() -> None:
    held = [longest(SMOL, preset, 64_000_000) for preset in PRESETS]
    # The blocks that are not sealed count more the shorter the context.
    assert held == [2752, 6016, 8320, 9856]


def test_the_budget_of_a_fitted_pool_holds_its_context() -> None:
    for spec in (SMOL, GEMMA):
        for preset in PRESETS:
            groups = page_groups(spec, PRESETS[preset])
            fitted = fit_pool(groups, 8192, 1, 2 * MIB).pool_bytes
            assert longest(spec, preset, fitted) >= 8192


def test_a_budget_that_holds_less_than_a_slab_of_each_size_is_still_used() -> None:
    for budget in (800_000, 1_500_000, 5_000_000, 9_000_000):
        assert longest(SMOL, "balanced", budget) >= 32 * (budget // 740_000 - 1) and longest(SMOL, "balanced", budget) >= 32


def test_a_pool_beyond_the_page_table_is_refused() -> None:
    with pytest.raises(BudgetError, match=r"a page table reaches 68\.7 GB.*--kv-budget 68GB"):
        cut_pool(page_groups(SMOL, PRESETS["exact"]), 65 << 30, 2 * MIB)


def test_a_pool_without_room_for_one_page_is_refused() -> None:
    with pytest.raises(BudgetError, match=r"one page of each layer group needs 737\.3 kB"):
        cut_pool(page_groups(SMOL, PRESETS["safe"]), 300_000, 2 * MIB)


def test_pool_bytes_grow_with_sequences_and_stop_growing_behind_the_windows() -> None:
    windows = page_groups(make_spec((64,) * 4), PRESETS["exact"])
    size = PoolSize(1 << 16, 1 << 16)
    assert bytes_needed(windows, size, 1024) == bytes_needed(windows, size, 8192)
    smol, slab = page_groups(SMOL, PRESETS["exact"]), PoolSize(2 * MIB, 2 * MIB)
    assert bytes_needed(smol, slab, 4096, 2) > 1.9 * bytes_needed(smol, slab, 4096, 1)
