"""A budget for KV memory: what fits, and what is said where something does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.config import InferenceConfig
from edge.errors import BudgetError, RequestError
from edge.kv_budget import KvChoice, budget_for, check_kv_budget, check_policy, kv_pool, longest_in_budget, most_in_budget
from edge.pages.fit import cut_pool, pool_holds
from edge.pages.geometry import page_groups
from edge.pages.linear import linear_bytes
from edge.planner import MemoryPlan, MemorySizes
from edge.preset_plan import preset_plans
from edge.presets import PRESETS, PresetName
from edge.spec import LayerSpec, ModelSpec, RopeSpec
from edge.units import parse_bytes

CONFIG = InferenceConfig.load()
SMOL = ModelSpec(
    name="smol", architecture="llama", vocab_size=49152, hidden_size=576, intermediate_size=1536, num_heads=9, num_kv_heads=3,
    head_dim=64, layers=(LayerSpec(0, 0),) * 30, ropes=(RopeSpec(64, 1e4, ()),), context_length=8192, norm_epsilon=1e-5,
    activation="silu", attention_scale=0.125, embedding_scale=1.0, qk_norm=False, post_norms=False, tied_head=True,
)  # fmt: skip
MB = 1_000_000


def refusal(kv: KvChoice, context: int, offered: tuple[str, ...] = tuple(PRESETS)) -> str:
    with pytest.raises(BudgetError) as caught:
        check_kv_budget(
            SMOL, kv, offered, what="a.md", context=context, sequences=1, limit=8192, config=CONFIG
        )  # fmt: skip
    return str(caught.value)


def test_a_budget_holds_a_prompt_twice_as_long_as_its_fp16_length() -> None:
    exact = longest_in_budget(SMOL, KvChoice("exact", 64 * MB), 1, 8192, CONFIG)
    assert longest_in_budget(SMOL, KvChoice("safe", 64 * MB), 1, 8192, CONFIG) > 2 * exact
    assert kv_pool(SMOL, KvChoice("safe", 64 * MB), 8192, 1, CONFIG).pool_bytes <= 64 * MB


def test_without_a_budget_the_pool_is_what_the_context_needs() -> None:
    assert longest_in_budget(SMOL, KvChoice("safe"), 1, 8192, CONFIG) == 8192
    assert kv_pool(SMOL, KvChoice("exact"), 8192, 1, CONFIG).pool_bytes == linear_bytes(SMOL, 8192, 1)


def test_a_refusal_names_the_preset_that_would_hold_it() -> None:
    assert refusal(KvChoice("exact", 64 * MB), 5000) == (
        "a.md needs a context of 5,000 tokens, --kv-budget 64.0 MB holds 2,752 at the preset exact. "
        "What would hold it: --kv-preset safe, or --kv-budget 117MB"
    )
    assert "--kv-preset balanced, or" in refusal(KvChoice("exact", 64 * MB), 7000)
    assert "--kv-preset" not in refusal(KvChoice("exact", 64 * MB), 5000, ("exact",)), "this package has no other"


def test_a_refusal_names_a_budget_where_no_preset_would() -> None:
    assert refusal(KvChoice("safe", 20 * MB), 6000).endswith("--kv-budget 64MB, or --kv-budget 42MB --kv-preset tight")
    assert refusal(KvChoice("tight", 20 * MB), 6000).endswith("What would hold it: --kv-budget 42MB")


def test_a_budget_holds_more_with_pages_demoted_the_fewer_are_kept() -> None:
    demoting = KvChoice("safe", 64 * MB, lowest="tight")
    most = [most_in_budget(SMOL, demoting, 32768, CONFIG, kept) for kept in (0, 20, 60)]
    assert most[0] > most[1] > most[2] >= longest_in_budget(SMOL, demoting, 1, 32768, CONFIG)
    assert most_in_budget(SMOL, KvChoice("safe", 64 * MB), 32768, CONFIG) == longest_in_budget(SMOL, demoting, 1, 32768, CONFIG)
    less = refusal(replace(demoting, budget_bytes=20 * MB), 6000)
    assert "holds 1,536 at the preset safe, 1,920 with pages demoted. What" in less
    check_kv_budget(SMOL, demoting, tuple(PRESETS), what="a.md", context=most[0], sequences=1, limit=32768, config=CONFIG)
    with pytest.raises(BudgetError):
        check_kv_budget(SMOL, demoting, tuple(PRESETS), what="two", context=most[0], sequences=2, limit=32768, config=CONFIG)


def test_a_policy_that_raises_pages_takes_more_of_a_budget() -> None:
    uniform, anchors = KvChoice("safe", 64 * MB), KvChoice("safe", 64 * MB, policy="anchors")
    assert longest_in_budget(SMOL, anchors, 1, 8192, CONFIG) < longest_in_budget(SMOL, uniform, 1, 8192, CONFIG)
    assert longest_in_budget(SMOL, replace(anchors, preset="exact"), 1, 8192, CONFIG) == 2752, "nothing is above fp16"


def test_a_policy_is_named_where_it_raises_pages_and_refused_where_it_cannot() -> None:
    assert KvChoice("balanced", policy="anchors").words == "balanced, policy anchors"
    assert KvChoice("balanced").words == "balanced" and KvChoice("exact", policy="anchors").words == "exact"
    with pytest.raises(RequestError, match=r"--kv-policy anchors: the preset exact seals no page.*--kv-preset safe, bal"):
        check_policy("anchors", "exact")
    for policy, preset in (("uniform", "exact"), (None, "exact"), ("anchors", "safe")):
        check_policy(policy, preset)  # type: ignore[arg-type]


def test_a_policy_by_attention_needs_room_for_a_prompt_one_step_up_and_a_refusal_says_what_does_not() -> None:
    attention = KvChoice("balanced", 48 * MB, policy="attention")
    uniform = longest_in_budget(SMOL, replace(attention, policy="uniform"), 1, 8192, CONFIG)
    longest = longest_in_budget(SMOL, attention, 1, 8192, CONFIG)
    assert 0.5 * uniform < longest < 0.8 * uniform
    assert "What would hold it: --kv-policy uniform, or --kv-" in refusal(attention, longest + 100)
    assert "--kv-policy" not in refusal(attention, uniform + 100)


@given(preset=st.sampled_from(list(PRESETS)), context=st.integers(1, 8192), sequences=st.integers(1, 3))
def test_a_budget_that_is_proposed_is_enough(preset: PresetName, context: int, sequences: int) -> None:
    groups = page_groups(SMOL, PRESETS[preset])
    budget = budget_for(groups, context, sequences, CONFIG)
    assert budget % MB == 0
    assert pool_holds(groups, cut_pool(groups, budget, CONFIG.slab_bytes), context, sequences)
    assert longest_in_budget(SMOL, KvChoice(preset, budget), sequences, 8192, CONFIG) >= context


def test_a_budget_below_a_page_says_what_a_page_needs() -> None:
    with pytest.raises(
        BudgetError, match=r"budget of 500\.0 kB: one page of each layer group needs 737\.3 kB\. .*--kv-budget 1MB"
    ):
        longest_in_budget(SMOL, KvChoice("tight", 500_000), 1, 8192, CONFIG)
    with pytest.raises(BudgetError, match=r"--kv-budget 800\.0 kB: 2 sequences of smol need 2\.0 MB for their first pages"):
        longest_in_budget(SMOL, KvChoice("tight", 800_000), 2, 8192, CONFIG)


def test_each_preset_has_its_row() -> None:
    memory = MemoryPlan(8192, 100 * MB, 0, MB, MB, 300 * MB, 8192)

    def sizes(kv: KvChoice) -> MemorySizes:
        return MemorySizes(100 * MB, lambda context: kv_pool(SMOL, kv, context, 1, CONFIG).pool_bytes, lambda context: MB, MB)

    rows = preset_plans(
        SMOL, sizes, memory, ("exact", "safe"), budget_bytes=None, sequences=1, longest_context=8192, config=CONFIG
    )
    assert [(row.preset, row.bits, row.ready, row.largest_context) for row in rows] == [
        ("exact", 16, True, 8192), ("safe", 6.75, True, 8192), ("balanced", 4.75, False, 8192), ("tight", 4.0, False, 8192)
    ]  # fmt: skip
    assert [round(row.pool / MB) for row in rows] == [189, 86, 62, 54]


@pytest.mark.parametrize(
    ("text", "size"),
    [("64MB", 64_000_000), ("96MiB", 96 << 20), ("1.5 GB", 1_500_000_000), (" 2gib ", 2 << 30), ("67108864", 1 << 26),
     ("10kB", 10_000), ("7 B", 7), ("1TiB", 1 << 40)],
)  # fmt: skip
def test_a_size_is_read_as_people_write_it(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["64M", "", "MB", "-1MB", "1e6", "64 megabytes", "1.2.3MB", "٣MB", "9" * 40])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a size in bytes\. Write it like 64MB"):
        parse_bytes(text)
