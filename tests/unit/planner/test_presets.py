"""Bytes of KV memory: the layouts of the contract, by hand and against the pages that the runtime hands out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.contract import OFFSET_UNIT, PAGE_TOKENS
from edge.pages.geometry import page_groups, peak_pages
from edge.presets import PRESETS, linear_bytes, page_bytes, paged_bytes
from edge.spec import LayerSpec, ModelSpec, RopeSpec


def model(windows: tuple[int, ...] = (0,) * 30, *, kv_heads: int = 3, head_dim: int = 64) -> ModelSpec:
    """SmolLM2-135M, unless told otherwise."""
    return ModelSpec(
        name="m", architecture="llama", vocab_size=49152, hidden_size=576, intermediate_size=1536, num_heads=9,
        num_kv_heads=kv_heads, head_dim=head_dim, layers=tuple(LayerSpec(window, 0) for window in windows),
        ropes=(RopeSpec(head_dim, 10000.0, ()),),
        context_length=8192, norm_epsilon=1e-5, activation="silu", attention_scale=0.125, embedding_scale=1.0, qk_norm=False,
        post_norms=False, tied_head=True,
    )  # fmt: skip


WINDOWED = model(tuple(0 if index % 6 == 5 else 512 for index in range(18)), kv_heads=1, head_dim=256)  # as Gemma-3-270M


def test_bits_count_scales_and_zeros() -> None:
    assert {name: preset.bits for name, preset in PRESETS.items()} == {
        "exact": 16,
        "safe": 6.75,
        "balanced": 4.75,
        "tight": 4.0,
    }


def test_a_page_holds_what_the_contract_lays_in_it() -> None:
    channels, layers = 3 * 64, 30
    per_channel, per_token = channels * 4, PAGE_TOKENS * 3 * 4  # one scale and one zero in fp16; V: one group of 64 a head
    key8, key4 = PAGE_TOKENS * channels, PAGE_TOKENS * channels // 2
    assert page_bytes(model(), layers, PRESETS["exact"]) == layers * 2 * PAGE_TOKENS * channels * 2
    assert page_bytes(model(), layers, PRESETS["safe"]) == layers * (key8 + per_channel + key4 + per_token)
    assert page_bytes(model(), layers, PRESETS["balanced"]) == layers * (2 * key4 + per_channel + per_token)
    assert page_bytes(model(), layers, PRESETS["tight"]) == layers * (key4 + per_channel + key4 // 2 + 2 * per_token)


def test_heads_that_no_group_divides_have_a_group_more() -> None:
    narrow, wide = model(kv_heads=1, head_dim=64), model(kv_heads=1, head_dim=80)
    grown = page_bytes(wide, 64, PRESETS["balanced"]) - page_bytes(narrow, 64, PRESETS["balanced"])
    assert grown == 64 * (16 * PAGE_TOKENS + 16 * 4 + PAGE_TOKENS * 4)  # 16 channels in 4 bits, their K scales, a V group


def test_extents_fill_whole_units() -> None:
    odd = model((0,), kv_heads=1, head_dim=2)
    assert page_bytes(odd, 1, PRESETS["exact"]) == 2 * OFFSET_UNIT
    assert page_bytes(odd, 1, PRESETS["tight"]) == 2 * OFFSET_UNIT


@pytest.mark.parametrize("spec", [model(), WINDOWED])
@pytest.mark.parametrize("context", [1, 31, 512, 4096, 8192])
def test_exact_pages_are_those_that_the_pool_hands_out(spec: ModelSpec, context: int) -> None:
    groups = page_groups(spec)
    expected = sum(group.page_bytes * peak_pages(group.window, context) for group in groups)
    assert paged_bytes(spec, context, 1, PRESETS["exact"]) == expected


def test_caches_in_one_tensor_give_nothing_back_behind_a_window() -> None:
    assert linear_bytes(WINDOWED, 4096, 1) == 18 * 4096 * 2 * 256 * 2
    assert paged_bytes(WINDOWED, 4096, 1, PRESETS["exact"]) < linear_bytes(WINDOWED, 4096, 1) / 3
    assert paged_bytes(model(), 4096, 1, PRESETS["exact"]) == linear_bytes(model(), 4096, 1)


def test_recent_pages_and_the_sink_stay_in_fp16() -> None:
    spec, preset = model(), PRESETS["balanced"]
    sealed, exact = page_bytes(spec, 30, preset), page_bytes(spec, 30, PRESETS["exact"])
    for pages, in_fp16 in ((1, 1), (9, 9), (10, 9), (256, 9)):
        assert paged_bytes(spec, pages * PAGE_TOKENS, 1, preset) == in_fp16 * exact + (pages - in_fp16) * sealed


def test_at_8192_tokens_the_presets_save_what_was_measured() -> None:
    exact = paged_bytes(model(), 8192, 1, PRESETS["exact"])
    assert exact / paged_bytes(model(), 8192, 1, PRESETS["safe"]) == pytest.approx(2.25, rel=0.01)
    assert exact / paged_bytes(model(), 8192, 1, PRESETS["balanced"]) == pytest.approx(3.1, rel=0.01)


@given(
    windows=st.lists(st.sampled_from([0, 128, 512, 1000]), min_size=1, max_size=6),
    kv_heads=st.integers(1, 8),
    head_dim=st.sampled_from([16, 64, 80, 128, 256]),
    context=st.integers(1, 20_000),
    sequences=st.integers(1, 4),
)
def test_a_coarser_preset_never_takes_more_and_more_tokens_never_less(
    windows: list[int], kv_heads: int, head_dim: int, context: int, sequences: int
) -> None:
    spec = model(tuple(windows), kv_heads=kv_heads, head_dim=head_dim)
    sizes = [paged_bytes(spec, context, sequences, preset) for preset in PRESETS.values()]
    assert sizes == sorted(sizes, reverse=True)
    for preset in PRESETS.values():
        assert paged_bytes(spec, context + 1, sequences, preset) >= paged_bytes(spec, context, sequences, preset)
    assert linear_bytes(spec, context + 1, sequences) > linear_bytes(spec, context, sequences)
