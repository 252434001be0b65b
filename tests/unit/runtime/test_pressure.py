"""A pool that is too small: pages of running requests are demoted before anybody is preempted, what was promised is answered,
and nothing is lost in any order of requests, cancellations, demotions and preemptions."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from stand_in import VOCABULARY, Bench, StandIn, make_bench, make_spec

from edge.anchors.zones import ANCHOR, BACKGROUND, SECTION, SINK
from edge.config import InferenceConfig
from edge.errors import BudgetError, ExecutorError, RequestError
from edge.executors.base import StepInput, StepOutput
from edge.kv_budget import KvChoice, kv_pool
from edge.manifest import Limits
from edge.policies import PolicyName
from edge.presets import PresetName
from edge.request import Request
from edge.runtime import Runtime
from edge.sampling import SamplingParams
from edge.session import Session

BenchOf = Callable[..., Any]  # stand_in.make_bench
GREEDY = SamplingParams()
LICENCE = (19, 11, 11, 6, 2, 1, 10, 32, 18, 6, 1, 6, 23, 2, 1, 2)  # pages of its sections, behind three round the heading
CONTEXT = 1664  # tokens; at less the pages that are never sealed are most of all


def prompt(length: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(40), k=length)


def small(bench_of: BenchOf = make_bench, share: float = 0.88, **words: Any) -> Bench:
    given = {"windows": (0,), "context": CONTEXT, "sequences": 1, "preset": "safe", "lowest": "tight", "pool_share": share}
    bench: Bench = bench_of(**{**given, **words})
    return bench


def blind(bench: Bench) -> Bench:
    """Without a look at pages, which takes most of the time of a stand-in: what it reads is seen in the other tests."""

    def run(step: StepInput) -> StepOutput:
        logits, flags = np.zeros((len(step.logit_rows), VOCABULARY), np.float32), np.zeros(len(step.kv_len), np.int32)
        return StepOutput(logits, flags, mass=np.zeros(step.page_table.shape[:3], np.int64))

    bench.executor.run = run  # type: ignore[method-assign]
    return bench


def test_a_long_text_is_answered_by_demoting_what_stands_back(bench_of: BenchOf) -> None:
    bench = small(bench_of)
    request = bench.runtime.submit(prompt(1580), GREEDY, 60)
    assert len(bench.finish()[request.id]) == 60
    stats = bench.runtime.stats
    assert request.finish_reason == "length" and stats.preemptions == 0 and stats.pages_demoted > 0
    assert set(request.kv_bytes["background"]) >= {"int4", "int2"}, "what it was answered with is told"
    assert stats.pool.used_bytes == stats.pool.cached_bytes and stats.bytes_by_zone == {}


def test_the_same_text_is_refused_where_nothing_may_be_demoted(bench_of: BenchOf) -> None:
    with pytest.raises(BudgetError, match=r"needs .* of KV pages, the pool has"):
        small(bench_of, lowest="safe").runtime.submit(prompt(1580), GREEDY, 60)
    with pytest.raises(BudgetError, match=r"needs .* of KV pages, .* with all demoted that may be, the pool has"):
        small(bench_of, share=0.5).runtime.submit(prompt(1580), GREEDY, 60)


def test_a_pool_that_fits_its_load_demotes_nothing_and_keeps_no_slab_spare(bench_of: BenchOf) -> None:
    bench = small(bench_of, share=1.0, sequences=3)
    requests = [bench.runtime.submit(prompt(1000, seed), GREEDY, 10) for seed in range(3)]
    answers = bench.finish()
    assert [answers[each.id] for each in requests] == [bench.answer(prompt(1000, seed), 10) for seed in range(3)]
    assert bench.runtime.stats.pages_demoted == bench.runtime.stats.preemptions == 0


def test_pages_around_anchors_are_never_demoted_and_sections_after_the_background(bench_of: BenchOf) -> None:
    bench = small(bench_of, share=0.95)
    zones = bytes([BACKGROUND, ANCHOR, SECTION, SECTION, BACKGROUND, BACKGROUND, ANCHOR, SECTION, *[BACKGROUND] * 12])
    session = bench.runtime.session()
    seen = []
    for event in session.generate(prompt(1580), GREEDY, 60, zones=zones):
        pages = session._sequence.pages
        if event.finish_reason is None:
            seen.append({zone: {pages.level(0, page) for page in range(1, 8) if zones[page] == zone} for zone in set(zones)})
    assert bench.runtime.stats.pages_demoted > 0
    assert all(levels[ANCHOR] == {2} for levels in seen)
    assert all(max(levels[SECTION]) == 2 or levels[BACKGROUND] == {4} for levels in seen)
    by_zone = bench.runtime.stats.bytes_by_zone
    assert set(by_zone["anchor"]) == {"int8", "int4"} and "fp16" in by_zone["sink"] and "fp16" in by_zone["recent"]
    assert sum(sum(each.values()) for each in by_zone.values()) == bench.runtime.stats.pool.used_bytes


def test_too_many_pages_that_may_not_be_demoted_are_refused(bench_of: BenchOf) -> None:
    with pytest.raises(BudgetError, match="with all demoted that may be"):
        small(bench_of).runtime.submit(prompt(1580), GREEDY, 60, zones=bytes([ANCHOR] * 48))


@pytest.mark.parametrize("cuts", [(), (40,), (300, 1000, 2000, 3000)])
def test_a_promise_is_held_beside_the_prefix_cache_on_a_shape_of_many_layers(cuts: tuple[int, ...]) -> None:
    spec, config = replace(make_spec((0,) * 30, head_dim=64), num_heads=9, num_kv_heads=3), InferenceConfig.load()
    assert config.prefix_cache
    size = kv_pool(spec, KvChoice("safe", 60_000_000, lowest="tight"), 8192, 1, config)
    limits = Limits(8192, 256, 1, 1)
    executor = StandIn(spec, (), np.empty(0, np.uint8), limits)
    runtime = blind(Bench(Runtime(spec, executor, size, limits, config, "safe", lowest="tight"), executor, (0,) * 30)).runtime
    zones = bytearray([SINK, *(zone for sections in LICENCE for zone in [ANCHOR] * 3 + [SECTION] * sections)])
    zones[116] = BACKGROUND  # a page of a size that no other has
    request = runtime.submit(prompt(6379), SamplingParams(), 4, cuts=cuts, zones=bytes(zones))
    while runtime.has_work:
        runtime.step()
        runtime.check()
    assert request.finish_reason == "length" and runtime.stats.pages_demoted > 0


def test_what_is_no_zone_is_refused(bench_of: BenchOf) -> None:
    with pytest.raises(RequestError, match=r"page 2 has the zone 9\. Zones are 0 to 4: sink, recent"):
        small(bench_of).runtime.submit(prompt(100), GREEDY, 5, zones=bytes([0, 1, 9]))


def test_requests_that_run_together_are_demoted_before_one_is_preempted(bench_of: BenchOf) -> None:
    together = blind(small(bench_of, share=0.7, sequences=3, context=640))
    requests = [together.runtime.submit(prompt(260, seed), GREEDY, 340) for seed in range(3)]
    together.finish()
    assert all(each.finish_reason == "length" for each in requests)
    stats = together.runtime.stats
    assert stats.pages_demoted > 0
    plain = blind(small(bench_of, share=0.7, sequences=3, context=640, lowest="exact"))
    for seed in range(3):
        plain.runtime.submit(prompt(260, seed), GREEDY, 340)
    plain.finish()
    assert stats.preemptions < plain.runtime.stats.preemptions


def test_anchors_are_sealed_a_level_above_the_preset_and_random_pages_as_many(bench_of: BenchOf) -> None:
    zones = np.full(20, BACKGROUND, np.uint8)
    zones[[3, 9]] = ANCHOR
    for policy, raised in (("anchors", [3, 9]), ("uniform", [])):
        bench = small(bench_of, share=1.0, policy=policy)
        session = bench.runtime.session()
        list(session.generate(prompt(620), GREEDY, 20, zones=zones.tobytes()))
        pages = session._sequence.pages
        assert [page for page in range(1, 12) if pages.level(0, page) == 1] == raised
        bench.runtime.check()


def test_a_demotion_that_the_engine_fails_ends_the_request_alone(bench_of: BenchOf) -> None:
    bench = small(bench_of)
    run = bench.executor.run

    def failing(step: StepInput) -> Any:
        if not len(step.kv_len):
            raise ExecutorError("a step of moves failed")
        return run(step)

    bench.executor.run = failing  # type: ignore[method-assign]
    request = bench.runtime.submit(prompt(1580), GREEDY, 60)
    bench.finish()
    pool = bench.runtime.stats.pool
    assert request.finish_reason == "error" and pool.used_bytes == pool.cached_bytes


@settings(max_examples=60, deadline=None)
@given(
    windows=st.sampled_from([(0,), (0, 150, 150), (40, 200), (0, 0, 40)]),
    preset=st.sampled_from(["safe", "balanced"]),
    lowest=st.sampled_from(["balanced", "tight"]),
    share=st.floats(0.6, 0.99),
    chunk=st.sampled_from([128, 33, 7]),
    length=st.integers(800, 1600),
    zones=st.lists(st.integers(0, 4), max_size=52),
    policy=st.sampled_from(["uniform", "anchors", "attention", "combined"]),
)
# Slabs that hold one extent of a raised page, and in its end another: none is free when it goes.
@example((0, 0, 40), "balanced", "tight", 0.625, 128, 1249, [], "attention")
def test_what_is_not_refused_is_answered(
    windows: tuple[int, ...],
    preset: PresetName,
    lowest: PresetName,
    share: float,
    chunk: int,
    length: int,
    zones: list[int],
    policy: PolicyName,
) -> None:
    bench = blind(small(windows=windows, preset=preset, lowest=lowest, share=share, chunk=chunk, policy=policy))
    try:
        request = bench.runtime.submit(prompt(length), GREEDY, 30, zones=bytes(zones))
    except BudgetError:
        return
    bench.finish()
    assert request.finish_reason == "length"
    assert bench.runtime.stats.preemptions == 0


class PressureMachine(RuleBasedStateMachine):
    """Requests, turns, cancellations and sessions in any order, in a pool that is too small for all of them at once."""

    def __init__(self, preset: PresetName, windows: tuple[int, ...], share: float, policy: PolicyName = "uniform") -> None:
        super().__init__()
        shape: dict[str, Any] = {"preset": preset, "windows": windows, "policy": policy}
        self.bench = small(share=share, context=900, sequences=3, step_tokens=260, **shape)
        self.requests: list[Request] = []
        self.sessions: list[Session] = []

    @rule(
        length=st.sampled_from([1, 128, 390, 500, 700]),
        count=st.sampled_from([1, 9, 30, 90]),
        zones=st.lists(st.integers(0, 4), max_size=22),
    )
    def submit(self, length: int, count: int, zones: list[int]) -> None:
        try:
            self.requests.append(self.bench.runtime.submit(prompt(length), GREEDY, count, zones=bytes(zones)))
        except BudgetError:
            assert length + count > 390

    @rule(length=st.sampled_from([40, 300, 600]), cut=st.sampled_from([0, 0, 40, 200]), which=st.integers(0, 2))
    def say(self, length: int, cut: int, which: int) -> None:
        if which >= len(self.sessions):
            self.sessions.append(self.bench.runtime.session())
        session = self.sessions[min(which, len(self.sessions) - 1)]
        known = session._sequence.token_ids
        try:
            self.requests.append(session.submit((known[: len(known) - cut] + prompt(length))[:880], GREEDY, 12))
        except (RequestError, BudgetError):
            return

    @rule(steps=st.integers(1, 12))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.bench.runtime.step()

    @precondition(lambda self: self.bench.runtime.has_work)
    @rule(which=st.integers(0, 5))
    def cancel(self, which: int) -> None:
        active = self.bench.runtime._queues.active()
        self.bench.runtime.cancel(active[which % len(active)].id)

    @precondition(lambda self: self.sessions)
    @rule(which=st.integers(0, 2))
    def close_session(self, which: int) -> None:
        self.sessions.pop(which % len(self.sessions)).close()

    @invariant()
    def every_extent_has_its_holders(self) -> None:
        self.bench.runtime.check()

    def teardown(self) -> None:
        self.bench.finish()
        assert all(request.finish_reason in ("length", "cancelled") for request in self.requests)
        for session in self.sessions:
            session.close()
        pool = self.bench.runtime.stats.pool
        assert pool.used_bytes == pool.cached_bytes


class FullMachine(PressureMachine):
    def __init__(self) -> None:
        super().__init__("safe", (0,), 0.5)


class WindowMachine(PressureMachine):
    def __init__(self) -> None:
        super().__init__("balanced", (0, 150, 150), 0.6)


class AttentionMachine(PressureMachine):
    def __init__(self) -> None:
        super().__init__("balanced", (0, 150, 150), 0.5, "combined")


TestAttentionMachine = AttentionMachine.TestCase
TestAttentionMachine.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
TestFullMachine = FullMachine.TestCase
TestFullMachine.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
TestWindowMachine = WindowMachine.TestCase
TestWindowMachine.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
