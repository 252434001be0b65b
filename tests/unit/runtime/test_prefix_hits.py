"""Requests that begin as others did: a hit equals a miss, every case that must be shortened, who gives way to whom. The
stand-in fails where a page is read in another form than the contract says, or is written while a cut holds it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from edge import step_choice
from edge.errors import ExecutorError
from edge.presets import PRESETS, PresetName
from edge.sampling import SamplingParams
from edge.scheduler.plan import plan
from edge.scheduler.state import Preempt

BenchOf = Callable[..., Any]  # stand_in.make_bench
GREEDY = SamplingParams()
WINDOWS = [(0,), (0, 200), (64, 150)]


def prompt(length: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(40), k=length)


def parted(length: int, at: int, seed: int = 7) -> list[int]:
    """Begins as `prompt` does, up to `at`."""
    front = prompt(length)[:at]
    return [*front, (prompt(length)[at] + 1) % 40, *prompt(length - at - 1, seed)]


def run(bench: Any, tokens: list[int], count: int = 12, cuts: tuple[int, ...] = ()) -> Any:
    """The request, answered; its answer is compared with that of a model without a runtime."""
    request = bench.runtime.submit(tokens, GREEDY, count, cuts=cuts)
    bench.finish()
    assert request.token_ids == bench.answer(tokens, count)
    return request


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("preset", ["exact", "balanced"])
def test_a_hit_equals_a_miss_wherever_the_cut_lies(bench_of: BenchOf, preset: PresetName, windows: tuple[int, ...]) -> None:
    for cut in (32, 160, 256, 384, 545):
        bench = bench_of(windows=windows, preset=preset, sequences=2)
        run(bench, prompt(560), cuts=(cut,))
        before = bench.runtime.stats
        request = run(bench, parted(570, cut + 5))
        after, reused = bench.runtime.stats, cut // 32 * 32
        assert request.reused_tokens == reused and after.prefill_tokens - before.prefill_tokens == 570 - reused
        assert (after.prefix_hits, after.prefix_hit_tokens, after.bytes_copied) == (1, reused, 0)


@pytest.mark.parametrize("preset", PRESETS)
def test_many_at_once_share_a_front_and_seal_it_each_for_itself(bench_of: BenchOf, preset: PresetName) -> None:
    bench = bench_of(windows=(0, 200), preset=preset, sequences=4)
    run(bench, prompt(400), cuts=(256,))
    prompts = [parted(420, 260 + i, i) for i in range(6)]
    requests = [bench.runtime.submit(tokens, GREEDY, 100) for tokens in prompts]
    answers = bench.finish()
    assert [answers[request.id] for request in requests] == [bench.answer(tokens, 100) for tokens in prompts]
    assert {request.reused_tokens for request in requests[:4]} == {256}
    assert {request.reused_tokens for request in requests[4:]} <= {0, 256}, "who waits may have to make room"


def test_the_end_of_an_answer_is_a_cut_without_being_asked_for(bench_of: BenchOf) -> None:
    bench = bench_of(windows=(0,), preset="safe")
    answer = run(bench, prompt(300), 30).token_ids
    turn = [*prompt(300), *answer, *prompt(20, 3)]
    assert run(bench, turn).reused_tokens == 320, "329 tokens are computed"
    assert run(bench, prompt(300)).reused_tokens == 0, "no cut was asked for inside"


def test_a_session_goes_back_to_the_end_of_an_earlier_turn(bench_of: BenchOf) -> None:
    bench = bench_of(windows=(0,), preset="balanced")
    session, talk, ends = bench.runtime.session(), prompt(150), []
    for turn in range(3):
        request = session.submit(talk, GREEDY, 40, cuts=[len(talk)])
        bench.finish()
        talk = [*talk, *request.token_ids]
        ends.append(len(talk) - 1)
        talk += prompt(40, turn + 1)
    undone = [*talk[: ends[1] + 1], *prompt(60, 9)]
    request = session.submit(undone, GREEDY, 10)
    assert request.reused_tokens == ends[1] // 32 * 32
    bench.finish()
    assert request.token_ids == bench.answer(undone, 10)
    other = bench.runtime.session().submit(undone[: ends[0] + 30], GREEDY, 10)
    assert other.reused_tokens == ends[0] // 32 * 32, "a second chat begins at the same cuts"
    bench.finish()
    assert other.token_ids == bench.answer(undone[: ends[0] + 30], 10)


def test_a_prompt_that_is_the_cut_or_ends_before_it_begins_at_an_earlier_one(bench_of: BenchOf) -> None:
    bench = bench_of(preset="safe", windows=(0,))
    run(bench, prompt(500), cuts=(64, 256, 320))
    assert run(bench, prompt(320)).reused_tokens == 256, "the last token is wanted for its logits"
    assert run(bench, prompt(321)).reused_tokens == 320
    assert run(bench, prompt(300)).reused_tokens == 256
    assert run(bench, prompt(64)).reused_tokens == 0


def test_a_cut_whose_page_went_behind_a_window_is_shortened(bench_of: BenchOf) -> None:
    for count, reused in ((30, 224), (32, 64)):
        # 32 more tokens and the window of 64 has left the page in which that of a query at 224 begins.
        bench = bench_of(windows=(0, 64))
        answer = run(bench, prompt(224), count, cuts=(64,)).token_ids
        assert run(bench, [*prompt(224), *answer[:28], *prompt(40, 5)]).reused_tokens == reused


def test_what_is_sealed_behind_a_cut_is_not_read_in_front_of_it(bench_of: BenchOf) -> None:
    bench = bench_of(windows=(0,), preset="tight")
    session = bench.runtime.session()
    talk = prompt(450)
    bench_answer = [event.token_id for event in session.generate(talk, GREEDY, 5)]
    assert bench_answer == bench.answer(talk, 5)
    # Own pages of 128 to 255 are sealed, and no cut kept them in fp16: from page 0 on.
    request = session.submit(parted(450, 300), GREEDY, 5)
    assert request.reused_tokens == 32
    bench.finish()
    assert request.token_ids == bench.answer(parted(450, 300), 5)
    bench.runtime.prefix_cache.clear()
    run(bench, talk, cuts=(290,))
    assert run(bench, parted(450, 300, 8)).reused_tokens == 288, "a cut in time keeps them"


def test_a_cut_that_was_evicted_is_shortened(bench_of: BenchOf) -> None:
    bench = bench_of(windows=(0,), preset="safe")
    run(bench, prompt(500), cuts=(64, 256, 320))
    cache, lengths = bench.runtime.prefix_cache, []
    while bench.runtime.stats.pool.cached_bytes:
        cut = cache.find(prompt(500), 499)
        lengths.append(cut.length if cut else 0)
        cache.evict()
        bench.runtime.check()
    assert lengths == [480, 320, 256, 64], "the longest goes first"
    assert run(bench, prompt(500)).reused_tokens == 0


def test_a_request_that_waits_takes_a_cut_that_comes_meanwhile(bench_of: BenchOf) -> None:
    bench = bench_of(sequences=1, windows=(0,), preset="safe")
    first = bench.runtime.submit(prompt(400), GREEDY, 5, cuts=(330,))
    second = bench.runtime.submit(parted(420, 360), GREEDY, 5)
    assert second.reused_tokens == 0
    answers = bench.finish()
    assert (second.reused_tokens, bench.runtime.stats.prefill_tokens) == (320, 400 + 420 - 320)
    assert answers[first.id] == bench.answer(prompt(400), 5) and answers[second.id] == bench.answer(parted(420, 360), 5)


def test_cached_pages_make_room_before_idle_sessions_do(bench_of: BenchOf) -> None:
    bench = bench_of(windows=(0,), context=320, sequences=3, pool_share=0.9)  # 27 pages
    session = bench.runtime.session()
    talk = prompt(250)
    talk += [event.token_id for event in session.generate(talk, GREEDY, 5)]
    for seed in range(1, 5):
        assert run(bench, prompt(300, seed)).reused_tokens == 0
        assert session.computed_tokens == 254
    assert bench.runtime.stats.preemptions == 0
    assert bench.runtime.stats.pool.high_water_bytes <= 512 * (8 + 10), "cached pages are not what was needed"
    assert bench.runtime.stats.pool.held_bytes == 512 * 8


@pytest.mark.parametrize("preset", ["exact", "safe"])
def test_a_fitted_pool_full_of_cuts_carries_what_it_was_fitted_for(bench_of: BenchOf, preset: PresetName) -> None:
    bench = bench_of(windows=(0, 200), sequences=2, preset=preset)
    for turn in range(3):
        prompts = [prompt(560 - 20 * i - turn, 2 * turn + i) for i in range(4)]
        requests = [bench.runtime.submit(tokens, GREEDY, 40, cuts=range(32, 560, 64)) for tokens in prompts]
        answers = bench.finish()
        for request, tokens in zip(requests, prompts, strict=True):
            assert answers[request.id] == bench.answer(tokens, 40)


def test_a_request_that_must_run_alone_gets_an_empty_pool(bench_of: BenchOf, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(windows=(0,), preset="balanced")
    request = bench.runtime.submit(prompt(300), GREEDY, 12, cuts=(64, 128))
    for _ in range(2):
        bench.runtime.step()
    assert bench.runtime.stats.prefix_cuts == 2
    # As where its pages lie scattered over slabs. Whether cuts scatter them again must not matter.
    answers = iter([Preempt(request.id)])
    monkeypatch.setattr(step_choice, "plan", lambda state, limits: next(answers, None) or plan(state, limits))
    assert len(bench.executor.steps) == 2
    bench.runtime.step()
    assert bench.runtime.stats.prefix_cuts == 0 and request.sequence.pages.length == 128
    bench.finish()
    assert request.token_ids == bench.answer(prompt(300), 12)
    assert bench.runtime.stats.prefix_cuts == 0 and bench.runtime.stats.pool.used_bytes == 0
    assert run(bench, prompt(300)).reused_tokens == 0 and bench.runtime.stats.prefix_cuts == 1, "others publish again"


def test_a_step_that_fails_or_is_not_finite_publishes_nothing(bench_of: BenchOf) -> None:
    bench = bench_of()

    def break_down(step: int) -> None:
        if step == 1:
            raise ExecutorError("stand-in: it broke")

    bench.executor.before_run = break_down
    request = bench.runtime.submit(prompt(200), GREEDY, 5, cuts=(64, 160))
    bench.finish()
    assert request.finish_reason == "error" and bench.runtime.stats.prefix_cuts == 1, "the first chunk was computed"
    bench.executor.before_run = lambda step: None
    bench.runtime.prefix_cache.clear()
    bench.executor.breaks = lambda step: {0}
    bench.runtime.submit(prompt(200), GREEDY, 5, cuts=(64, 160))
    bench.finish()
    assert bench.runtime.stats.prefix_cuts == 0
    bench.executor.breaks = lambda step: set()
    assert run(bench, prompt(200)).reused_tokens == 0


def test_a_cache_that_is_off_keeps_nothing(bench_of: BenchOf) -> None:
    bench = bench_of(prefix_cache=False)
    for _ in range(2):
        assert run(bench, prompt(200), cuts=(64, 160)).reused_tokens == 0
    assert bench.runtime.stats.pool.used_bytes == bench.runtime.stats.prefix_cuts == 0
