"""Levels of sealed pages: where a policy raises them, and where they are demoted; and pools that are planned for it."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from page_models import GEMMA, SMOL, make_spec

from edge.anchors.zones import ANCHOR, BACKGROUND, RECENT, SECTION, SINK
from edge.contract import EMPTY, FORMAT_SHIFT, PAGE_FORMATS, PAGE_MOVES, SEAL_TOKENS
from edge.pages.fit import fit_pool
from edge.pages.geometry import GroupPages, page_groups, pages_for
from edge.pages.moves import Demotion, PageMove
from edge.pages.policy import kept_raised, seal_levels
from edge.pages.pool import Pool
from edge.pages.sequence import SequencePages
from edge.policies import BY_ATTENTION, RAISED_SHARES, PolicyName
from edge.presets import PRESETS, PresetName
from edge.spec import ModelSpec

TINY = make_spec((0, 200), head_dim=32)
NAMES = {number: name for name, number in PAGE_FORMATS.items()}


def make(
    preset: PresetName = "safe", lowest: PresetName = "tight", tokens: int = 1024, spec: ModelSpec = TINY
) -> tuple[Pool, SequencePages, tuple[GroupPages, ...]]:
    groups = page_groups(spec, PRESETS[preset], PRESETS[lowest], 1.0)
    pool = Pool(fit_pool(groups, tokens, 2, 1 << 16))
    return pool, SequencePages(pool, groups, pages_for(tokens)), groups


def step(pool: Pool, pages: SequencePages, length: int, demotions: tuple[Demotion, ...] = ()) -> tuple[PageMove, ...]:
    with pool.reserve(pages.step_extents(length, demotions)) as lease:
        words, moves = pages.place(length, lease, demotions)
        assert all(not waiting for waiting in lease._waiting.values()), "more was asked for than the step takes"
        lease.commit()
    pages.commit(words.copy(), length, demotions)
    return moves


def grow(pool: Pool, pages: SequencePages, length: int) -> None:
    while pages.length < length:
        step(pool, pages, min(length, (pages.length // SEAL_TOKENS + 1) * SEAL_TOKENS))


def forms(pages: SequencePages, group: int = 0) -> list[str]:
    """K/V formats of the pages that stand."""
    words = pages.words()[group]
    return [f"{NAMES[int(k) >> FORMAT_SHIFT]}/{NAMES[int(v) >> FORMAT_SHIFT]}" for k, v in words if k != EMPTY]


def test_levels_go_from_fp16_down_to_the_preset_or_to_the_lowest() -> None:
    def names(preset: PresetName, lowest: PresetName) -> list[str]:
        (group,) = page_groups(SMOL, PRESETS[preset], PRESETS[lowest])
        assert group.levels[group.base] == group.sealed
        return [f"{kind.key.page_format}/{kind.value.page_format}" for kind in group.levels]

    assert names("exact", "tight") == ["fp16/fp16"]
    assert names("safe", "exact") == ["fp16/fp16", "int8/int8", "int8/int4"]
    assert names("safe", "balanced") == ["fp16/fp16", "int8/int8", "int8/int4", "int4/int4"]
    assert names("balanced", "tight") == ["fp16/fp16", "int8/int8", "int8/int4", "int4/int4", "int4/int2"]
    assert names("tight", "safe") == names("balanced", "tight")


def test_page_moves_lead_from_fp16_to_all_levels_and_from_each_to_the_next() -> None:
    (group,) = page_groups(SMOL, PRESETS["safe"], PRESETS["tight"])
    steps = [*itertools.pairwise(group.levels), *((group.open, level) for level in group.levels[1:])]
    for level, behind in steps:
        assert level.bytes > behind.bytes
        for source, target in ((level.key, behind.key), (level.value, behind.value)):
            assert source == target or target.page_format in PAGE_MOVES[source.page_format]


def test_a_page_is_sealed_at_the_level_that_it_is_assigned() -> None:
    pool, pages, _ = make()
    pages.assign(np.zeros(8, np.uint8), np.array([2, 0, 1, 2, 3, 4, 0, 1], np.uint8))
    grow(pool, pages, 600)
    assert forms(pages) == [
        *["fp16/fp16", "fp16/fp16", "int8/int8", "int8/int4", "int4/int4", "int4/int2", "fp16/fp16", "int8/int8"],
        *["int8/int4"] * 4, *["fp16/fp16"] * 7,
    ]  # fmt: skip
    assert [pages.level(0, page) for page in range(1, 9)] == [0, 1, 2, 3, 4, 0, 1, 2]
    pool.check(pages.extents())
    pages.release()
    pool.check(Counter())


def test_a_page_that_is_kept_in_fp16_is_not_moved() -> None:
    pool, pages, _ = make()
    pages.assign(np.zeros(4, np.uint8), np.array([2, 0, 2, 0], np.uint8))
    grow(pool, pages, 256)
    stood = pages.words()[0, 1].copy()
    moves = step(pool, pages, 257)
    assert pages.to_seal() == (0, 0) and (pages.words()[0, 1] == stood).all()
    assert len(moves) == 2 * 2, "K and V of page 2, in both groups"
    pool.check(pages.extents())


def test_a_page_is_demoted_by_the_side_that_changes_and_frees_what_it_was() -> None:
    pool, pages, groups = make()
    grow(pool, pages, 400)
    before = pages.extents()
    assert pages.demoted([Demotion(0, 1, 3)]) == {groups[0].levels[3].key: 1}
    (move,) = step(pool, pages, 400, (Demotion(0, 1, 3),))
    assert not move.is_value and not move.seals and not move.is_copy and pages.was_demoted
    assert forms(pages)[:3] == ["fp16/fp16", "int4/int4", "int8/int4"] and pages.length == 400
    assert (pages.extents() - before).total() == (before - pages.extents()).total() == 1
    pool.check(pages.extents())
    assert len(step(pool, pages, 401, (Demotion(0, 2, 4), Demotion(0, 1, 4)))) == 3, "beside a token, over two levels"
    assert forms(pages)[:3] == ["fp16/fp16", "int4/int2", "int4/int2"]
    pool.check(pages.extents())


def test_a_demotion_that_fails_leaves_everything_as_it_was() -> None:
    pool, pages, _ = make()
    grow(pool, pages, 400)
    before = pages.extents()
    demotions = (Demotion(0, 1, 3),)
    with pool.reserve(pages.step_extents(400, demotions)) as lease:
        pages.place(400, lease, demotions)  # and then the engine fails: no commit
    assert pages.extents() == before and not pages.was_demoted
    pool.check(before)


def test_demotable_are_sealed_pages_of_the_zone_that_nobody_else_holds_the_most_exact_first() -> None:
    pool, pages, _ = make(spec=make_spec((0,), head_dim=32))
    zones = np.array([SINK, BACKGROUND, SECTION, BACKGROUND, ANCHOR, BACKGROUND, RECENT, RECENT], np.uint8)
    pages.assign(zones, np.array([2, 3, 2, 2, 2, 2, 2, 2], np.uint8))
    grow(pool, pages, 400)  # pages 1 to 7 are sealed
    assert [(each.page, each.level) for each in pages.demotable(BACKGROUND)] == [(3, 3), (5, 3), (1, 4)]
    assert [each.page for each in pages.demotable(SECTION)] == [2]
    shared = int(pages.words()[0, 3, 1])
    pool.share([(shared & 0xFFFFFFF) * 256])
    assert [each.page for each in pages.demotable(BACKGROUND)] == [5, 1]
    pool.release((shared & 0xFFFFFFF) * 256)
    step(pool, pages, 400, tuple(pages.demotable(BACKGROUND)))
    assert [(each.page, each.level) for each in pages.demotable(BACKGROUND)] == [(3, 4), (5, 4)]


def test_bytes_are_told_by_zone_and_format() -> None:
    pool, pages, groups = make(spec=make_spec((0,), head_dim=32))
    zones = np.array([BACKGROUND, BACKGROUND, ANCHOR, SECTION, *[BACKGROUND] * 8], np.uint8)
    pages.assign(zones, seal_levels("uniform", zones, groups[0].base))
    grow(pool, pages, 400)
    fp16, sealed = groups[0].open.key.bytes, groups[0].sealed
    found = pages.bytes_by_zone()
    assert found["sink"] == {"fp16": 2 * fp16} and found["recent"] == {"fp16": 5 * 2 * fp16}
    assert found["anchor"] == found["section"] == {"int8": sealed.key.bytes, "int4": sealed.value.bytes}
    assert found["background"] == {name: 5 * size for name, size in found["anchor"].items()}
    assert sum(sum(each.values()) for each in found.values()) == pool.used_bytes == sum(pages.bytes_by_format().values())


def test_what_another_sequence_sealed_is_compared_with_what_this_one_would() -> None:
    pool, pages, groups = make()
    other = SequencePages(pool, groups, 32)
    for each in (pages, other):
        grow(pool, each, 500)
    assert pages.is_sealed_as_assigned(other.words()[:, :12], 8)
    step(pool, other, 500, (Demotion(0, 5, 3),))
    assert not pages.is_sealed_as_assigned(other.words()[:, :12], 8)
    assert pages.is_sealed_as_assigned(other.words()[:, :12], 5)


@pytest.mark.parametrize("policy", [policy for policy in RAISED_SHARES if policy not in BY_ATTENTION])
def test_a_policy_raises_at_most_its_share_by_one_level(policy: PolicyName) -> None:
    zones = np.array([SINK, *[ANCHOR, SECTION, BACKGROUND] * 33, *[RECENT] * 4], np.uint8)
    levels = seal_levels(policy, zones, 3)
    raised = np.flatnonzero(levels == 2)
    assert len(raised) == int(RAISED_SHARES[policy] * len(zones)) and set(levels.tolist()) <= {2, 3}
    assert policy != "anchors" or (zones[raised] == ANCHOR).all()
    assert not {SINK, RECENT} & set(zones[raised].tolist())
    assert (seal_levels(policy, zones, 3) == levels).all(), "equal zones give equal pages"
    assert (seal_levels(policy, zones, 0) == 0).all(), "fp16 has nothing above it"
    assert (seal_levels(policy, np.full(50, BACKGROUND, np.uint8), 3) == 3).all()


@pytest.mark.parametrize("policy", BY_ATTENTION)
def test_policies_by_attention_raise_what_is_sealed_while_the_prompt_is_computed(policy: PolicyName) -> None:
    zones = np.full(3, ANCHOR, np.uint8)
    for tokens, sealed in ((1, 0), (256, 0), (257, 4), (1000, 24), (1024, 24), (1025, 28)):
        levels = seal_levels(policy, zones, 3, tokens)
        assert np.flatnonzero(levels == 2).tolist() == list(range(sealed)) and set(levels.tolist()) <= {2, 3}
    assert (seal_levels(policy, zones, 0, 1000) == 0).all(), "fp16 has nothing above it"


def test_of_raised_pages_those_with_most_mass_stay_and_of_equal_ones_the_later() -> None:
    mass, zones = np.array([99, 5, 7, 7, 1, 7, 9, 9], np.int64), np.full(8, BACKGROUND, np.uint8)
    raised = np.array([1, 2, 3, 4, 5, 6], np.int64)
    for policy in BY_ATTENTION:
        kept = [kept_raised(policy, mass, zones, raised, count).tolist() for count in (0, 1, 2, 3, 4, 9)]
        assert kept == [[], [6], [5, 6], [3, 5, 6], [2, 3, 5, 6], [1, 2, 3, 4, 5, 6]]


def test_combined_takes_half_by_mass_and_then_headings_evenly() -> None:
    mass, zones = np.arange(20, dtype=np.int64), np.full(20, BACKGROUND, np.uint8)
    raised = np.arange(1, 20)
    zones[[0, 2, 4, 6, 19]] = ANCHOR
    assert kept_raised("combined", mass, zones, raised, 4).tolist() == [2, 4, 18, 19]
    assert kept_raised("combined", mass, zones, raised, 8).tolist() == [2, 4, 6, 15, 16, 17, 18, 19]
    assert kept_raised("combined", mass, zones, raised, 1).tolist() == [19]


def test_few_anchors_are_all_raised_and_random_raises_as_many() -> None:
    zones = np.full(100, BACKGROUND, np.uint8)
    zones[[0, 20, 60]] = SINK, ANCHOR, ANCHOR
    assert np.flatnonzero(seal_levels("anchors", zones, 2) == 1).tolist() == [20, 60]
    assert (seal_levels("random", zones, 2) == 1).sum() == 2


@settings(max_examples=60, deadline=None)
@given(
    windows=st.lists(st.sampled_from([0, 40, 130, 200]), min_size=1, max_size=2, unique=True),
    preset=st.sampled_from(["safe", "balanced", "tight"]),
    share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    context=st.integers(1, 1000),
    sequences=st.integers(1, 2),
    data=st.data(),
)
def test_a_pool_that_is_planned_for_a_policy_never_refuses_it(
    windows: list[int], preset: PresetName, share: float, context: int, sequences: int, data: st.DataObject
) -> None:
    groups = page_groups(make_spec(tuple(sorted(windows)), head_dim=32), PRESETS[preset], PRESETS["tight"], share)
    pool = Pool(fit_pool(groups, context, sequences, 1 << 14))
    live = [SequencePages(pool, groups, pages_for(context)) for _ in range(sequences)]
    base, count = groups[0].base, pages_for(context)
    for pages in live:
        levels = np.full(count, base, np.uint8)
        raised = data.draw(st.lists(st.integers(0, count - 1), max_size=int(share * count), unique=True))
        levels[raised] = base - 1
        pages.assign(np.full(count, BACKGROUND, np.uint8), levels)
    for _ in range(30):
        pages = data.draw(st.sampled_from(live))
        border = (pages.length // SEAL_TOKENS + 1) * SEAL_TOKENS
        end = min(context, border, pages.length + data.draw(st.sampled_from([1, 31, SEAL_TOKENS])))
        if end == pages.length:
            pages.rewind(pages.rewind_point(data.draw(st.integers(0, pages.length))))
            continue
        until, taken = pages.extents_until(context, SEAL_TOKENS), pages.step_extents(end)
        assert all(number <= until[kind] for kind, number in taken.items())
        step(pool, pages, end)
        pool.check(sum((each.extents() for each in live), Counter()))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_demotions_between_steps_lose_nothing(data: st.DataObject) -> None:
    spec = data.draw(st.sampled_from([TINY, GEMMA, make_spec((0,), head_dim=32)]))
    preset = data.draw(st.sampled_from(["safe", "balanced"]))
    pool, pages, _ = make(preset, "tight", 900, spec)
    pages.assign(np.array(data.draw(st.lists(st.integers(0, 4), max_size=28)), np.uint8), np.zeros(0, np.uint8))
    for _ in range(20):
        left = {}
        for zone in range(5):
            for each in pages.demotable(zone):
                left[each.group, each.page] = each.level
        chosen = data.draw(st.lists(st.sampled_from(sorted(left)), max_size=5, unique=True)) if left else []
        demotions = tuple(Demotion(*place, left[place]) for place in chosen)
        border = (pages.length // SEAL_TOKENS + 1) * SEAL_TOKENS
        end = min(900, border, pages.length + data.draw(st.sampled_from([0, 1, 40, 128])))
        if not demotions and end == pages.length:
            continue
        step(pool, pages, end, demotions)
        pool.check(pages.extents())
        for place, each in zip(chosen, demotions, strict=True):
            if (pages.words()[place] != EMPTY).all():
                assert pages.level(*place) == each.level
