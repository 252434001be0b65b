"""Arithmetic of extents, windows, slabs and pools."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.contract import OFFSET_UNIT, PAGE_TOKENS, SEAL_TOKENS
from edge.errors import BudgetError, RequestError
from edge.pages.geometry import (
    cut_pool,
    extent_bytes,
    extents_of,
    first_page,
    fit_pool,
    page_groups,
    pages_for,
    peak_pages,
    pool_bytes_for,
    slab_bytes_for,
    slabs_for,
)
from edge.spec import LayerSpec, ModelSpec, RopeSpec


def make_spec(windows: tuple[int, ...], num_kv_heads: int = 2, head_dim: int = 16) -> ModelSpec:
    return ModelSpec(
        name="tiny",
        architecture="llama",
        vocab_size=64,
        hidden_size=64,
        intermediate_size=64,
        num_heads=num_kv_heads * 2,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        layers=tuple(LayerSpec(window, 0) for window in windows),
        ropes=(RopeSpec(head_dim, 10000.0, ()),),
        context_length=8192,
        norm_epsilon=1e-5,
        activation="silu",
        attention_scale=0.25,
        embedding_scale=1.0,
        qk_norm=False,
        post_norms=False,
        tied_head=True,
    )


SMOL = make_spec((0,) * 30, num_kv_heads=3, head_dim=64)
GEMMA = make_spec(tuple(0 if i % 6 == 5 else 512 for i in range(18)), num_kv_heads=1, head_dim=256)


def test_an_fp16_extent_is_layers_heads_channels_tokens() -> None:
    assert extent_bytes(SMOL, 0, "fp16") == 30 * 3 * 64 * 32 * 2
    assert [extent_bytes(GEMMA, group, "fp16") for group in (0, 1)] == [3 * 256 * 32 * 2, 15 * 256 * 32 * 2]


def test_a_format_that_is_not_there_yet_is_refused_by_name() -> None:
    with pytest.raises(RequestError, match="int8"):
        extent_bytes(SMOL, 0, "int8")


def test_the_offset_of_any_extent_fits_a_page_table_word() -> None:
    odd = make_spec((0,), num_kv_heads=1, head_dim=2)
    assert extent_bytes(odd, 0, "fp16") % OFFSET_UNIT == 0


@given(window=st.integers(1, 700), position=st.integers(0, 2000))
def test_the_first_page_is_the_one_with_the_oldest_visible_position(window: int, position: int) -> None:
    oldest = max(0, position - window + 1)
    assert first_page(window, position) == oldest // PAGE_TOKENS


@given(window=st.integers(1, 700), tokens=st.integers(1, 2000), chunk=st.integers(1, SEAL_TOKENS), data=st.data())
def test_no_walk_through_a_text_holds_more_pages_than_the_peak(
    window: int, tokens: int, chunk: int, data: st.DataObject
) -> None:
    peak, position = peak_pages(window, tokens, chunk), 0
    while position < tokens:
        border = (position // SEAL_TOKENS + 1) * SEAL_TOKENS
        end = min(tokens, border, position + data.draw(st.integers(1, chunk)))
        assert pages_for(end) - first_page(window, position) <= peak
        position = end


def test_the_peak_of_a_window_is_reached() -> None:
    assert peak_pages(512, 4096) == pages_for(640) - first_page(512, 512)
    assert peak_pages(512, 100) == 4
    assert peak_pages(0, 4096) == 128


def test_the_slabs_of_both_models_leave_nothing_unused() -> None:
    for spec in (SMOL, GEMMA):
        groups = page_groups(spec)
        slab = slab_bytes_for(groups, 1 << 30, 2 << 20)
        assert 1 << 20 <= slab <= 2 << 20
        assert all(slab % kind.bytes == 0 for group in groups for kind in (group.key, group.value))


def test_a_small_pool_takes_small_slabs() -> None:
    size = fit_pool(GEMMA, 256, 1, 2 << 20)
    groups = page_groups(GEMMA)
    needed = sum(group.page_bytes * 8 for group in groups)
    assert size.pool_bytes < needed * 1.1


@given(
    windows=st.lists(st.sampled_from([0, 8, 40, 128, 200]), min_size=1, max_size=5),
    heads=st.integers(1, 3),
    pool=st.integers(1 << 16, 1 << 26),
    slab=st.sampled_from([1 << 16, 1 << 19, 2 << 20]),
)
def test_a_cut_pool_is_whole_slabs_that_take_every_extent(windows: list[int], heads: int, pool: int, slab: int) -> None:
    spec = make_spec(tuple(windows), num_kv_heads=heads, head_dim=64)
    groups = page_groups(spec)
    try:
        size = cut_pool(spec, pool, slab)
    except BudgetError:
        assert pool < slabs_for(extents_of(groups, (1,) * len(groups)), slab_bytes_for(groups, pool, slab)) * (2 << 20)
        return
    assert size.pool_bytes % size.slab_bytes == 0 and 0 < size.pool_bytes <= pool
    assert all(group.key.bytes <= size.slab_bytes for group in groups)


def test_a_pool_beyond_the_page_table_is_refused() -> None:
    with pytest.raises(BudgetError, match="64 GiB"):
        cut_pool(SMOL, 65 << 30, 2 << 20)


def test_a_pool_without_room_for_one_page_is_refused() -> None:
    with pytest.raises(BudgetError, match="one page"):
        cut_pool(SMOL, 300_000, 2 << 20)


def test_pool_bytes_grow_with_sequences_and_stop_growing_behind_the_windows() -> None:
    all_windows = make_spec((64,) * 4)
    assert pool_bytes_for(all_windows, 1024, 1, 1 << 16) == pool_bytes_for(all_windows, 8192, 1, 1 << 16)
    assert pool_bytes_for(SMOL, 4096, 2, 2 << 20) > 1.9 * pool_bytes_for(SMOL, 4096, 1, 2 << 20)
