"""The loop with presets that seal: what a query reads, whatever comes between; and what is counted. The stand-in checks the
form of every page that it reads against the contract's words."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from stand_in import make_bench

from edge.pages.geometry import page_groups, pages_for, sealed_end
from edge.presets import PRESETS, PresetName
from edge.request import Request
from edge.sampling import SamplingParams
from edge.session import Session

BenchOf = Callable[..., Any]  # stand_in.make_bench
GREEDY = SamplingParams()
SEALING: list[PresetName] = ["safe", "balanced", "tight"]


def prompt(length: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(40), k=length)


@pytest.mark.parametrize("preset", SEALING)
@pytest.mark.parametrize("length", [1, 32, 127, 128, 129, 255, 256, 257, 300, 384, 600])
def test_an_answer_is_what_the_contract_says_token_by_token(bench_of: BenchOf, preset: PresetName, length: int) -> None:
    bench = bench_of(preset=preset)
    tokens = [event.token_id for event in bench.runtime.generate(prompt(length), GREEDY, 30)]
    assert tokens == bench.answer(prompt(length), 30)
    bench.runtime.check()
    assert bench.runtime.stats.pool.held_bytes == 0


def test_sealing_changes_what_a_model_sees(bench_of: BenchOf) -> None:
    # Otherwise the other tests here would show nothing.
    assert bench_of(preset="safe").answer(prompt(600), 5) != bench_of().answer(prompt(600), 5)
    assert bench_of(preset="safe").answer(prompt(250), 5) == bench_of().answer(prompt(250), 5)


@pytest.mark.parametrize("windows", [(0,), (0, 40, 40, 40), (16, 200, 200), (0, 300)])
@pytest.mark.parametrize(("chunk", "step_tokens"), [(128, 256), (128, 128), (7, 256), (128, 9), (1, 4)])
def test_chunks_of_any_size_give_the_same_answer(
    bench_of: BenchOf, windows: tuple[int, ...], chunk: int, step_tokens: int
) -> None:
    bench = bench_of(windows=windows, chunk=chunk, step_tokens=step_tokens, preset="balanced")
    bench.runtime.submit(prompt(500), GREEDY, 20)
    (tokens,) = bench.finish().values()
    assert tokens == bench.answer(prompt(500), 20)


def test_a_batch_gives_every_request_its_own_answer(bench_of: BenchOf) -> None:
    bench = bench_of(sequences=4, preset="safe")
    requests = [bench.runtime.submit(prompt(17 + 70 * i, seed=i), GREEDY, 10 + 15 * i) for i in range(8)]
    answers = bench.finish()
    for i, request in enumerate(requests):
        assert answers[request.id] == bench.answer(prompt(17 + 70 * i, seed=i), 10 + 15 * i)
    assert max(len(step.kv_len) for step in bench.executor.steps) == 4
    assert bench.runtime.stats.preemptions == 0, "the pool fits this load"


@pytest.mark.parametrize("windows", [(0,), (0, 40, 40, 40), (0, 200, 200)])
def test_a_preempted_request_answers_as_if_nothing_had_been(bench_of: BenchOf, windows: tuple[int, ...]) -> None:
    bench = bench_of(windows=windows, context=500, pool_share=0.4, preset="balanced")
    requests = [bench.runtime.submit(prompt(120, seed=i), GREEDY, 320) for i in range(4)]
    answers = bench.finish()
    assert bench.runtime.stats.preemptions > 0
    assert [answers[request.id] for request in requests] == [bench.answer(prompt(120, seed=i), 320) for i in range(4)]


@pytest.mark.parametrize("windows", [(0,), (0, 40), (0, 300)])
@pytest.mark.parametrize(("at", "reused"), [(450, 450), (385, 385), (383, 32), (200, 32), (20, 20)])
@pytest.mark.parametrize("prefix_cache", [False, True])
def test_a_turn_that_changes_the_past_goes_back_to_where_all_stands(
    bench_of: BenchOf, windows: tuple[int, ...], at: int, reused: int, prefix_cache: bool
) -> None:
    bench = bench_of(windows=windows, preset="safe", prefix_cache=prefix_cache)
    reused = reused // 32 * 32 if prefix_cache else reused  # a page that a cut holds is not written to
    session, talk = bench.runtime.session(), prompt(500)
    assert _say(session, talk, 10) == bench.answer(talk, 10)  # sealed up to 256
    changed = [*talk[:at], (talk[at] + 1) % 40, *prompt(50, seed=at)]
    request = session.submit(changed, GREEDY, 5)
    if windows == (0,):
        assert request.reused_tokens == reused
    else:  # pages behind the window are missing for an earlier point
        assert request.reused_tokens in (0, reused)
    bench.finish()
    assert request.token_ids == bench.answer(changed, 5)


def test_the_next_turn_computes_only_what_is_new(bench_of: BenchOf) -> None:
    bench = bench_of(preset="balanced")
    session, talk = bench.runtime.session(), prompt(300)
    for turn in range(4):
        before = bench.runtime.stats.prefill_tokens
        answer = _say(session, talk, 20)
        assert answer == bench.answer(talk, 20)
        assert bench.runtime.stats.prefill_tokens - before == (300 if turn == 0 else 31)
        talk = talk + answer + prompt(30, seed=turn + 1)
    session.close()
    assert bench.runtime.stats.pool.held_bytes == 0


def test_a_step_that_fails_while_it_seals_leaves_no_extent_behind(bench_of: BenchOf) -> None:
    bench = bench_of(preset="safe", windows=(0,))
    session, talk = bench.runtime.session(), prompt(250)
    talk = talk + _say(session, talk, 5)

    def break_down(step: int) -> None:
        raise ZeroDivisionError

    bench.executor.before_run = break_down
    session.submit(talk + prompt(10), GREEDY, 5)
    with pytest.raises(ZeroDivisionError):
        bench.finish()
    bench.runtime.check()
    bench.executor.before_run = lambda step: None
    bench.finish()
    session.close()
    bench.runtime.check()
    assert bench.runtime.stats.pool.held_bytes == 0


@pytest.mark.parametrize("preset", PRESETS)
def test_counters_tell_what_was_sealed_and_how_pages_are_kept(bench_of: BenchOf, preset: PresetName) -> None:
    bench = bench_of(windows=(0, 300), preset=preset, sequences=1)
    session = bench.runtime.session()
    _say(session, prompt(600), 2)
    stats, groups = bench.runtime.stats, page_groups(bench.executor.spec, PRESETS[preset])
    if preset == "exact":
        assert (stats.pages_sealed, stats.bytes_moved, stats.bytes_copied) == (0, 0, 0)
        assert set(stats.pool.bytes_by_format) == {"fp16"}
        return
    # Of the full group all but the sink up to 384; of the other what its window of 300 still held at 256, 384 and 512.
    sealed = [sealed_end(600) - 1, 3 + 4 + 4]
    assert stats.pages_sealed == sum(sealed) and stats.bytes_copied == 0
    assert stats.bytes_moved == sum(group.sealed.bytes * count for group, count in zip(groups, sealed, strict=True))
    kept = stats.pool.bytes_by_format
    held = [(pages_for(601) - (sealed_end(600) - 1), sealed_end(600) - 1), (pages_for(601) - 12, 3)]
    assert kept["fp16"] == sum(group.open.bytes * count for group, (count, _) in zip(groups, held, strict=True))
    assert sum(kept.values()) == stats.pool.used_bytes
    assert kept["fp16"] + sum(group.sealed.bytes * n for group, (_, n) in zip(groups, held, strict=True)) == sum(kept.values())
    counts = stats.pool
    assert counts.used_bytes + counts.free_bytes + counts.slack_bytes == counts.pool_bytes == len(bench.executor.pool)


class RuntimeMachine(RuleBasedStateMachine):
    """Requests, turns, cancellations and sessions in any order, in a pool that may be too small for all of them at once."""

    def __init__(self, preset: PresetName, windows: tuple[int, ...]) -> None:
        super().__init__()
        self.bench = make_bench(windows=windows, context=420, sequences=3, step_tokens=160, pool_share=0.55, preset=preset)
        self.wanted: dict[int, tuple[Request, list[int], int]] = {}
        self.came: dict[int, list[int]] = {}
        self.sessions: list[tuple[Session, list[int]]] = []

    @rule(
        length=st.sampled_from([1, 33, 128, 250, 260, 390]),
        count=st.sampled_from([1, 9, 30]),
        seed=st.integers(0, 3),
        cuts=st.sets(st.sampled_from([32, 100, 128, 240, 256, 300, 384]), max_size=3),
    )
    def submit(self, length: int, count: int, seed: int, cuts: set[int]) -> None:
        # Prompts of one seed begin alike.
        request = self.bench.runtime.submit(prompt(length, seed), GREEDY, count, cuts=sorted(cuts))
        self._wait_for(request, prompt(length, seed), count)

    @precondition(lambda self: self.bench.runtime.stats.pool.cached_bytes)
    @rule(times=st.integers(1, 4))
    def evict(self, times: int) -> None:
        for _ in range(times):
            if self.bench.runtime.stats.pool.cached_bytes:
                self.bench.runtime.prefix_cache.evict()

    @rule(length=st.sampled_from([40, 140, 270]), seed=st.integers(0, 3))
    def open_session(self, length: int, seed: int) -> None:
        if len(self.sessions) < 3:
            self.sessions.append((self.bench.runtime.session(), prompt(length, seed)))

    @precondition(lambda self: self.sessions)
    @rule(which=st.integers(0, 2), cut=st.sampled_from([0, 0, 0, 1, 40, 200]), more=st.sampled_from([1, 20, 70]))
    def say(self, which: int, cut: int, more: int) -> None:
        session, talk = self.sessions[which % len(self.sessions)]
        if any(request.sequence is session._sequence for request in self.bench.runtime._queues.active()):
            return
        known = list(session._sequence.token_ids) or talk
        tokens = (known[: max(1, len(known) - cut)] + prompt(more, seed=more))[:400]
        self._wait_for(session.submit(tokens, GREEDY, 12, cuts=[len(tokens) - more, len(tokens)]), tokens, 12)

    @rule(steps=st.integers(1, 12))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            for event in self.bench.runtime.step():
                if event.token_id is not None:
                    self.came.setdefault(event.request_id, []).append(event.token_id)

    @precondition(lambda self: self.bench.runtime.has_work)
    @rule(which=st.integers(0, 5))
    def cancel(self, which: int) -> None:
        active = self.bench.runtime._queues.active()
        self.bench.runtime.cancel(active[which % len(active)].id)

    @precondition(lambda self: self.sessions)
    @rule(which=st.integers(0, 2))
    def close_session(self, which: int) -> None:
        session, _ = self.sessions.pop(which % len(self.sessions))
        session.close()

    @invariant()
    def every_extent_has_its_holders(self) -> None:
        self.bench.runtime.check()

    def teardown(self) -> None:
        while self.bench.runtime.has_work:
            self.step(1)
            self.bench.runtime.check()
        for number, (request, tokens, count) in self.wanted.items():
            expected = self.bench.answer(tokens, min(count, 421 - len(tokens)))
            if request.finish_reason == "length":
                assert self.came[number] == expected
            else:
                assert request.finish_reason == "cancelled" and self.came.get(number, []) == expected[: len(request.token_ids)]
        for session, _ in self.sessions:
            session.close()
        assert self.bench.runtime.stats.pool.held_bytes == 0 and self.bench.runtime.stats.bytes_copied == 0
        self.bench.runtime.prefix_cache.clear()
        self.bench.runtime.check()
        assert self.bench.runtime.stats.pool.used_bytes == 0

    def _wait_for(self, request: Request, tokens: list[int], count: int) -> None:
        self.wanted[request.id] = (request, list(tokens), count)


class ExactMachine(RuntimeMachine):
    def __init__(self) -> None:
        super().__init__("exact", (0, 64))


class FullMachine(RuntimeMachine):
    def __init__(self) -> None:
        super().__init__("balanced", (0,))


class WindowMachine(RuntimeMachine):
    def __init__(self) -> None:
        super().__init__("tight", (0, 150, 150))


TestExactMachine = ExactMachine.TestCase
TestFullMachine = FullMachine.TestCase
TestWindowMachine = WindowMachine.TestCase
for machine in (TestExactMachine, TestFullMachine, TestWindowMachine):
    machine.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)


def _say(session: Session, tokens: list[int], count: int) -> list[int]:
    return [event.token_id for event in session.generate(tokens, GREEDY, count) if event.token_id is not None]
