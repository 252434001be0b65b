"""Requests that end before their time: cancelled, interrupted, or with an engine that fails."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.errors import BudgetError, ExecutorError, RequestError
from edge.queues import Queues
from edge.request import Request
from edge.sampling import SamplingParams

BenchOf = Callable[..., Any]  # stand_in.make_bench
GREEDY = SamplingParams()


def prompt(length: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(40), k=length)


def raise_at(steps: set[int]) -> Callable[[int], None]:
    def before_run(step: int) -> None:
        if step in steps:
            raise ExecutorError("stand-in: it broke")

    return before_run


def test_a_cancelled_request_returns_every_extent_wherever_it_is(bench_of: BenchOf) -> None:
    for steps in range(12):
        bench = bench_of(sequences=2)
        requests = [bench.runtime.submit(prompt(400, seed=i), GREEDY, 40) for i in range(3)]
        for _ in range(steps):
            bench.runtime.step()
        for request in requests[::2]:
            bench.runtime.cancel(request.id)
            bench.runtime.check()
        bench.runtime.cancel(requests[0].id)  # a second time changes nothing
        events = bench.runtime.step()
        assert [e.request_id for e in events if e.finish_reason == "cancelled"] == [requests[0].id, requests[2].id]
        assert bench.finish()[requests[1].id][-1] == bench.answer(prompt(400, seed=1), 40)[-1]
        assert bench.runtime.stats.pool.held_bytes == 0
        assert [request.finish_reason for request in requests] == ["cancelled", "length", "cancelled"]


def test_leaving_a_generator_cancels_its_request(bench_of: BenchOf) -> None:
    bench = bench_of()
    for event in bench.runtime.generate(prompt(200), GREEDY, 50):
        assert event.token_id is not None
        break
    assert not bench.runtime.has_work and bench.runtime.stats.pool.held_bytes == 0


@pytest.mark.parametrize("asked", [0, 1])
@pytest.mark.parametrize("way", ["close", "with", "drop"])
def test_events_that_nobody_waits_for_cancel_their_request_even_before_the_first(
    bench_of: BenchOf, asked: int, way: str
) -> None:
    bench = bench_of()
    other = bench.runtime.submit(prompt(40), GREEDY, 5)
    events = bench.runtime.generate(prompt(200), GREEDY, 50)
    for _ in range(asked):
        next(events)
    if way == "close":
        events.close()
        events.close()
        assert list(events) == []
    elif way == "with":
        with pytest.raises(ZeroDivisionError), events:
            raise ZeroDivisionError
    del events
    bench.runtime.check()
    assert [e.finish_reason for e in bench.runtime.step() if e.request_id != other.id] == ["cancelled"]
    assert bench.finish()[other.id][-1] == bench.answer(prompt(40), 5)[-1], "others go on"
    assert not bench.runtime._inboxes


def test_events_of_a_request_that_has_ended_are_over(bench_of: BenchOf) -> None:
    bench = bench_of()
    request = bench.runtime.submit(prompt(20), GREEDY, 3)
    bench.finish()
    assert list(bench.runtime.events(request)) == []


def test_an_engine_that_fails_ends_the_requests_of_that_step_and_no_others(bench_of: BenchOf) -> None:
    bench = bench_of(sequences=2)
    requests = [bench.runtime.submit(prompt(40, seed=i), GREEDY, 20) for i in range(3)]
    bench.executor.before_run = raise_at({5})
    events = []
    while bench.runtime.has_work:
        events += bench.runtime.step()
        bench.runtime.check()
    failed = [event for event in events if event.finish_reason == "error"]
    assert [event.request_id for event in failed] == [requests[0].id, requests[1].id]
    assert all(isinstance(event.error, ExecutorError) and event.token_id is None for event in failed)
    assert requests[2].token_ids == bench.answer(prompt(40, seed=2), 20)
    assert bench.runtime.stats.pool.held_bytes == 0


def test_a_generator_raises_what_the_engine_reports(bench_of: BenchOf) -> None:
    bench = bench_of()
    bench.executor.before_run = raise_at({1})
    with pytest.raises(ExecutorError, match="it broke"):
        list(bench.runtime.generate(prompt(200), GREEDY, 5))
    assert [e.token_id for e in bench.runtime.generate(prompt(20), GREEDY, 5)] == bench.answer(prompt(20), 5)


def test_a_bug_in_the_engine_leaves_no_extent_behind(bench_of: BenchOf) -> None:
    bench = bench_of()

    def break_down(step: int) -> None:
        raise ZeroDivisionError

    bench.executor.before_run = break_down
    request = bench.runtime.submit(prompt(100), GREEDY, 5)
    with pytest.raises(ZeroDivisionError):
        bench.runtime.step()
    bench.runtime.check()
    assert bench.runtime.stats.pool.held_bytes == 0
    bench.executor.before_run = lambda step: None
    assert bench.finish()[request.id] == bench.answer(prompt(100), 5), "the step can be tried again"


def test_logits_that_are_not_numbers_end_their_request_alone(bench_of: BenchOf) -> None:
    bench = bench_of()
    requests = [bench.runtime.submit(prompt(20, seed=i), GREEDY, 8) for i in range(2)]

    def spoil(logits: np.ndarray) -> None:
        if len(bench.executor.steps) == 4:
            logits[0, 3] = np.nan

    bench.executor.spoil = spoil
    answers = bench.finish()
    assert [request.finish_reason for request in requests] == ["error", "length"]
    assert answers[requests[1].id] == bench.answer(prompt(20, seed=1), 8)


@pytest.mark.parametrize("at", [0, 1, 5])  # of its steps: two chunks of the prompt, then decoding
def test_a_sequence_that_is_not_finite_ends_its_request_and_no_other(bench_of: BenchOf, at: int) -> None:
    bench = bench_of(step_tokens=384)
    prompts = [prompt(150, seed=i) for i in range(3)]
    session = bench.runtime.session()
    requests = [(session if i == 1 else bench.runtime).submit(prompts[i], GREEDY, 12) for i in range(3)]
    bench.executor.breaks = lambda step: {1} if len(bench.executor.steps) == at + 1 else set()
    events = []
    while bench.runtime.has_work:
        events += bench.runtime.step()
        bench.runtime.check()
    ended = {event.request_id: event for event in events if event.finish_reason}
    broken = ended[requests[1].id]
    assert broken.finish_reason == "error" and "not finite" in str(broken.error)
    assert requests[1].token_ids == bench.answer(prompts[1], max(0, at - 1)), "nothing of the broken step is kept"
    for index in (0, 2):
        assert requests[index].token_ids == bench.answer(prompts[index], 12)
    assert [event.token_id for event in session.generate(prompts[1], GREEDY, 5)] == bench.answer(prompts[1], 5)
    session.close()
    assert bench.runtime.stats.pool.held_bytes == 0


def test_ctrl_c_in_a_step_takes_effect_behind_it(bench_of: BenchOf) -> None:
    bench = bench_of()
    request = bench.runtime.submit(prompt(100), GREEDY, 10)

    def interrupt(step: int) -> None:
        if step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    bench.executor.before_run = interrupt
    for _ in range(3):
        bench.runtime.step()
    with pytest.raises(KeyboardInterrupt):
        bench.runtime.step()
    bench.runtime.check()
    assert len(bench.executor.steps) == 4 and len(request.token_ids) == 4
    bench.finish()
    assert request.token_ids == bench.answer(prompt(100), 10), "nothing was lost or done twice"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("way", ["submit", "generate"])
def test_ctrl_c_while_a_request_is_submitted_leaves_none_behind(
    bench_of: BenchOf, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_of()
    session = bench.runtime.session()
    add = Queues.add

    def interrupted(queues: Queues, request: Request) -> None:
        add(queues, request)
        os.kill(os.getpid(), signal.SIGINT)

    for target in (bench.runtime, session):
        monkeypatch.setattr(Queues, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            getattr(target, way)(prompt(50), GREEDY, 5)
        monkeypatch.setattr(Queues, "add", add)
        assert not bench.runtime.has_work and not bench.runtime._inboxes
        bench.runtime.check()
    assert [event.token_id for event in session.generate(prompt(50), GREEDY, 5)] == bench.answer(prompt(50), 5)
    session.close()


def test_ctrl_c_in_a_generator_cancels_its_request(bench_of: BenchOf) -> None:
    bench = bench_of()
    bench.executor.before_run = lambda step: os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        list(bench.runtime.generate(prompt(100), GREEDY, 10))
    assert not bench.runtime.has_work and bench.runtime.stats.pool.held_bytes == 0
    bench.runtime.check()


def test_closing_cancels_everything_and_closes_the_engine(bench_of: BenchOf) -> None:
    bench = bench_of(sequences=2)
    with bench.runtime as runtime:
        requests = [runtime.submit(prompt(40, seed=i), GREEDY, 20) for i in range(3)]
        runtime.step()
    assert bench.executor.is_closed
    assert all(request.finish_reason == "cancelled" for request in requests)
    assert runtime.stats.pool.used_bytes == 0
    runtime.check()


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_order_of_requests_steps_and_cancellations_keeps_every_promise(data: st.DataObject, bench_of: BenchOf) -> None:
    windows = data.draw(st.sampled_from([(0,), (0, 40, 40, 40), (16, 200, 200)]))
    bench = bench_of(
        windows=windows,
        sequences=data.draw(st.integers(1, 4)),
        step_tokens=data.draw(st.sampled_from([5, 100, 256])),
        pool_share=data.draw(st.sampled_from([1.0, 0.3, 0.6])),
    )
    sessions = [bench.runtime.session() for _ in range(2)]
    requests, prompts = [], []
    for _ in range(data.draw(st.integers(1, 30))):
        action = data.draw(st.sampled_from(["submit", "turn", "step", "step", "steps", "cancel", "fail", "break", "close"]))
        if action in ("submit", "turn"):
            tokens = prompt(data.draw(st.integers(1, 300)), seed=data.draw(st.integers(0, 1)))
            target = bench.runtime if action == "submit" else data.draw(st.sampled_from(sessions))
            try:
                requests.append(target.submit(tokens, GREEDY, data.draw(st.integers(1, 60))))
                prompts.append(tokens)
            except (RequestError, BudgetError):  # the session is busy, or the pool too small
                pass
        elif action == "cancel" and requests:
            bench.runtime.cancel(data.draw(st.sampled_from(requests)).id)
        elif action == "close":
            data.draw(st.sampled_from(sessions)).close()
        elif action == "fail":
            bench.executor.before_run = raise_at({len(bench.executor.steps)})
            bench.runtime.step()
            bench.executor.before_run = lambda step: None
        elif action == "break":
            bench.executor.breaks = lambda step: {len(step.kv_len) // 2}
            bench.runtime.step()
            bench.executor.breaks = lambda step: set()
        else:
            for _ in range(1 if action == "step" else 20):
                bench.runtime.step()
                bench.runtime.check()
        bench.runtime.check()
    bench.finish()
    for request, tokens in zip(requests, prompts, strict=True):
        assert request.token_ids == bench.answer(tokens, len(request.token_ids))
        assert request.finish_reason != "length" or len(request.token_ids) == request.max_tokens
    for session in sessions:
        session.close()
    bench.runtime.check()
    assert bench.runtime.stats.pool.held_bytes == 0
