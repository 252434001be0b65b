"""The loop over a stand-in engine: answers, batches, chunks, preemption, figures."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from edge.errors import BudgetError, RequestError
from edge.sampling import SamplingParams

BenchOf = Callable[..., Any]  # stand_in.make_bench
GREEDY = SamplingParams()


def prompt(length: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(40), k=length)


@pytest.mark.parametrize("length", [1, 31, 32, 33, 127, 128, 129, 300, 600])
def test_an_answer_is_what_the_model_says_token_by_token(bench_of: BenchOf, length: int) -> None:
    bench = bench_of()
    events = list(bench.runtime.generate(prompt(length), GREEDY, 30))
    assert [event.token_id for event in events] == bench.answer(prompt(length), 30)
    assert [event.finish_reason for event in events] == [None] * 29 + ["length"]
    bench.runtime.check()
    assert bench.runtime.stats.pool.held_bytes == 0


@pytest.mark.parametrize(("chunk", "step_tokens"), [(128, 256), (128, 128), (7, 256), (128, 9), (1, 4)])
def test_chunks_of_any_size_give_the_same_answer(bench_of: BenchOf, chunk: int, step_tokens: int) -> None:
    bench = bench_of(chunk=chunk, step_tokens=step_tokens)
    bench.runtime.submit(prompt(300), GREEDY, 20)
    (tokens,) = bench.finish().values()
    assert tokens == bench.answer(prompt(300), 20)


def test_a_batch_gives_every_request_its_own_answer(bench_of: BenchOf) -> None:
    bench = bench_of(sequences=4)
    requests = [bench.runtime.submit(prompt(17 + 60 * i, seed=i), GREEDY, 10 + 5 * i) for i in range(8)]
    answers = bench.finish()
    for i, request in enumerate(requests):
        assert answers[request.id] == bench.answer(prompt(17 + 60 * i, seed=i), 10 + 5 * i)
    assert max(len(step.kv_len) for step in bench.executor.steps) == 4
    assert bench.runtime.stats.preemptions == 0, "the pool fits this load"


def test_a_seeded_answer_is_the_same_alone_and_in_a_batch(bench_of: BenchOf) -> None:
    params = SamplingParams(temperature=1.0, top_k=20, top_p=0.9, seed=7)
    alone = [event.token_id for event in bench_of().runtime.generate(prompt(50), params, 40)]
    bench = bench_of()
    others = [bench.runtime.submit(prompt(90, seed=i), SamplingParams(temperature=1.0), 30) for i in range(2)]
    request = bench.runtime.submit(prompt(50), params, 40)
    bench.runtime.submit(prompt(200, seed=9), GREEDY, 30)
    assert bench.finish()[request.id] == alone
    assert others[0].sampling.seed != others[1].sampling.seed


@pytest.mark.parametrize("windows", [(0,), (0, 40, 40, 40), (16, 200, 200)])
def test_a_preempted_request_answers_as_if_nothing_had_been(bench_of: BenchOf, windows: tuple[int, ...]) -> None:
    bench = bench_of(windows=windows, context=320, pool_share=0.5)
    params = SamplingParams(temperature=1.0, seed=3)
    fitted = bench_of(windows=windows)
    requests = [bench.runtime.submit(prompt(150, seed=i), params, 170) for i in range(4)]
    expected = [fitted.runtime.submit(prompt(150, seed=i), params, 170) for i in range(4)]
    answers, wanted = bench.finish(), fitted.finish()
    assert bench.runtime.stats.preemptions > 0
    assert [answers[request.id] for request in requests] == [wanted[request.id] for request in expected]


def test_requests_of_equal_work_end_in_the_order_in_which_they_came(bench_of: BenchOf) -> None:
    bench = bench_of(windows=(0,), context=256, sequences=2, pool_share=0.7)
    requests = [bench.runtime.submit(prompt(100, seed=i), GREEDY, 150) for i in range(6)]
    ends = []
    while bench.runtime.has_work:
        ends += [event.request_id for event in bench.runtime.step() if event.finish_reason]
    assert bench.runtime.stats.preemptions > 0
    assert ends == [request.id for request in requests]


def test_a_request_that_can_never_fit_is_refused_with_both_sizes(bench_of: BenchOf) -> None:
    bench = bench_of(windows=(0,), sequences=1, pool_share=0.8)
    bench.runtime.submit(prompt(32), GREEDY, 400)
    with pytest.raises(BudgetError, match=r"up to 600 tokens needs 9\.7 kB of KV pages, the pool has 8\.2 kB"):
        bench.runtime.submit(prompt(300), GREEDY, 301)


def test_an_answer_ends_at_a_stop_id_which_is_reported_and_not_repeated(bench_of: BenchOf) -> None:
    bench = bench_of()
    answer = bench.answer(prompt(50), 30)
    events = list(bench.runtime.generate(prompt(50), GREEDY, 30, frozenset({answer[12]})))
    first = answer.index(answer[12])
    assert [event.token_id for event in events] == answer[: first + 1]
    assert events[-1].finish_reason == "stop" and events[-2].finish_reason is None


def test_an_answer_ends_where_the_context_does(bench_of: BenchOf) -> None:
    bench = bench_of(context=64)
    events = list(bench.runtime.generate(prompt(60), GREEDY, 1000))
    assert len(events) == 5 and events[-1].finish_reason == "length"
    assert len(list(bench.runtime.generate(prompt(64), GREEDY, 1000))) == 1


def test_a_prompt_that_makes_no_sense_is_refused_with_the_reason(bench_of: BenchOf) -> None:
    runtime = bench_of(context=64).runtime
    for tokens, count, message in (
        ([], 5, "empty"),
        (prompt(65), 5, "65 tokens.*64"),
        ([1, 40], 5, "40 is outside the vocabulary of 40"),
        ([1, -1], 5, "-1 is outside"),
        ([1], 0, "max_tokens is 0"),
    ):
        with pytest.raises(RequestError, match=message):
            runtime.generate(tokens, GREEDY, count)
    assert not runtime.has_work


def test_two_generators_at_once_get_their_own_tokens(bench_of: BenchOf) -> None:
    bench = bench_of()
    one = bench.runtime.generate(prompt(20, seed=1), GREEDY, 15)
    two = bench.runtime.generate(prompt(90, seed=2), GREEDY, 15)
    pairs = [(a.token_id, b.token_id) for a, b in zip(one, two, strict=True)]
    assert [a for a, _ in pairs] == bench.answer(prompt(20, seed=1), 15)
    assert [b for _, b in pairs] == bench.answer(prompt(90, seed=2), 15)


def test_figures_count_tokens_steps_and_bytes(bench_of: BenchOf) -> None:
    bench = bench_of()
    request = bench.runtime.submit(prompt(300), SamplingParams(logprobs=True), 10)
    events = []
    while bench.runtime.has_work:
        events += bench.runtime.step()
    stats = bench.runtime.stats
    assert (stats.prefill_tokens, stats.decode_tokens, stats.steps, stats.bytes_copied) == (300, 9, 12, 0)
    assert stats.prefill_seconds > 0 and stats.decode_seconds > 0
    assert 0 < stats.pool.high_water_bytes <= stats.pool.pool_bytes
    assert request.pace.time_to_first_token > 0 and request.pace.decode_rate > 0
    assert all(event.logprob < 0 for event in events)


def test_a_nearly_full_pool_that_could_overflow_is_reported_once(bench_of: BenchOf, caplog: pytest.LogCaptureFixture) -> None:
    bench = bench_of(windows=(0,), context=256, sequences=1, pool_share=0.5)
    with caplog.at_level(logging.WARNING):
        for seed in range(2):
            list(bench.runtime.generate(prompt(100, seed), GREEDY, 20))
    assert [record.name for record in caplog.records] == ["edge.step_run"]
    assert "100 %" in caplog.text


def test_a_full_pool_that_fits_everything_is_no_news(bench_of: BenchOf, caplog: pytest.LogCaptureFixture) -> None:
    # Chunks as short as that let go of pages behind a window sooner, so the pool that fits them is smaller.
    for windows, context, chunk in (((0,), 128, 128), ((0, 200), 1280, 32)):
        bench = bench_of(windows=windows, context=context, sequences=1, chunk=chunk)
        with caplog.at_level(logging.WARNING):
            list(bench.runtime.generate(prompt(context - 28), GREEDY, 20))
        assert not caplog.records


def test_cut_points_of_a_prompt_reach_the_scheduler(bench_of: BenchOf) -> None:
    bench = bench_of()
    assert bench.runtime.submit(prompt(300), GREEDY, 5, cuts=[200, 60, 7, 301]).cuts == (32, 192)
    bench.finish()


def test_the_time_of_a_step_is_split_into_executor_and_loop(bench_of: BenchOf) -> None:
    bench = bench_of()
    bench.executor.before_run = lambda step: time.sleep(0.01)
    bench.runtime.submit([3, 4, 5], GREEDY, 3)
    start = time.perf_counter()
    bench.finish()
    took, stats = time.perf_counter() - start, bench.runtime.stats
    inside = stats.prefill_seconds + stats.decode_seconds
    assert (stats.steps, stats.prefill_tokens, stats.decode_tokens) == (3, 3, 2)
    assert inside >= 0.03 and 0 < stats.loop_seconds <= took - inside
