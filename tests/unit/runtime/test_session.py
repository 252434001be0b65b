"""Conversations: what was computed for the same tokens is used again, and given up when others need the room."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from edge.errors import ExecutorError, RequestError
from edge.sampling import SamplingParams

BenchOf = Callable[..., Any]  # stand_in.make_bench
GREEDY = SamplingParams()


def prompt(length: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(40), k=length)


def say(session: Any, tokens: list[int], count: int) -> list[int]:
    return [event.token_id for event in session.generate(tokens, GREEDY, count)]


def test_the_next_turn_computes_only_what_is_new(bench_of: BenchOf) -> None:
    bench = bench_of()
    session = bench.runtime.session()
    talk = prompt(100)
    for turn in range(4):
        before = bench.runtime.stats.prefill_tokens
        answer = say(session, talk, 20)
        assert answer == bench.answer(talk, 20)
        # The last token of the answer before was never computed, so it is computed with the new ones.
        assert bench.runtime.stats.prefill_tokens - before == (100 if turn == 0 else 31)
        talk = talk + answer + prompt(30, seed=turn + 1)
        bench.runtime.check()
    assert bench.runtime.stats.pool.used_bytes > 0
    session.close()
    assert bench.runtime.stats.pool.held_bytes == 0


@pytest.mark.parametrize("prefix_cache", [False, True])
def test_a_turn_that_changes_the_past_goes_back_to_where_they_part(bench_of: BenchOf, prefix_cache: bool) -> None:
    bench = bench_of(windows=(0,), prefix_cache=prefix_cache)
    session = bench.runtime.session()
    talk = prompt(200)
    say(session, talk, 10)
    changed = talk[:150] + prompt(60, seed=5)
    request = session.submit(changed, GREEDY, 10)
    same = next(i for i in range(150, 210) if (talk + [99] * 10)[i] != changed[i])
    assert request.reused_tokens == (same // 32 * 32 if prefix_cache else same), "a page that a cut holds is not written to"
    bench.finish()
    assert request.token_ids == bench.answer(changed, 10)


def test_behind_a_window_everything_is_computed_again(bench_of: BenchOf) -> None:
    bench = bench_of(windows=(0, 40))
    session = bench.runtime.session()
    talk = prompt(200)
    say(session, talk, 10)
    changed = talk[:100] + prompt(60, seed=5)
    request = session.submit(changed, GREEDY, 10)
    assert request.reused_tokens == 0
    bench.finish()
    assert request.token_ids == bench.answer(changed, 10)


def test_the_same_prompt_again_computes_one_token_for_its_logits(bench_of: BenchOf) -> None:
    bench = bench_of(windows=(0,))
    session = bench.runtime.session()
    assert say(session, prompt(200), 10) == say(session, prompt(200), 10)
    assert bench.runtime.stats.prefill_tokens == 201
    bench.runtime.check()


def test_a_cancelled_turn_leaves_what_was_computed(bench_of: BenchOf) -> None:
    bench = bench_of()
    session = bench.runtime.session()
    events = session.generate(prompt(100), GREEDY, 50)
    for _ in range(10):
        next(events)
    events.close()
    assert session.computed_tokens == 109
    talk = prompt(100) + bench.answer(prompt(100), 10) + prompt(9, seed=2)
    assert say(session, talk, 5) == bench.answer(talk, 5)


def test_a_session_has_one_request_at_a_time(bench_of: BenchOf) -> None:
    bench = bench_of()
    session = bench.runtime.session()
    session.submit(prompt(10), GREEDY, 5)
    with pytest.raises(RequestError, match="has not ended"):
        session.submit(prompt(10), GREEDY, 5)
    bench.finish()
    session.submit(prompt(10), GREEDY, 5)


def test_idle_sessions_give_up_their_pages_to_who_computes_the_longest_idle_first(bench_of: BenchOf) -> None:
    bench = bench_of(windows=(0,), context=320, sequences=3, pool_share=0.9)  # 27 pages
    sessions = [bench.runtime.session() for _ in range(3)]
    for i in (1, 0, 2):
        say(sessions[i], prompt(250, seed=i), 5)
    request = bench.runtime.submit(prompt(300, seed=9), GREEDY, 5)
    assert bench.finish()[request.id] == bench.answer(prompt(300, seed=9), 5)
    assert [session.computed_tokens for session in sessions] == [254, 0, 254]
    assert bench.runtime.stats.preemptions == 0
    assert say(sessions[1], prompt(260, seed=1), 5) == bench.answer(prompt(260, seed=1), 5)


def test_an_engine_that_fails_makes_a_session_start_again(bench_of: BenchOf) -> None:
    bench = bench_of()
    session = bench.runtime.session()
    talk = prompt(100) + say(session, prompt(100), 5) + prompt(10)

    def break_down(step: int) -> None:
        raise ExecutorError("stand-in: it broke")

    bench.executor.before_run = break_down
    with pytest.raises(ExecutorError):
        say(session, talk, 5)
    assert session.computed_tokens == 0
    bench.runtime.check()
    bench.executor.before_run = lambda step: None
    assert say(session, talk, 5) == bench.answer(talk, 5)


def test_closing_a_session_in_the_middle_cancels_its_request(bench_of: BenchOf) -> None:
    bench = bench_of()
    session = bench.runtime.session()
    request = session.submit(prompt(100), GREEDY, 50)
    for _ in range(5):
        bench.runtime.step()
    session.close()
    assert request.finish_reason == "cancelled" and bench.runtime.stats.pool.held_bytes == 0
    bench.runtime.check()


def test_a_turn_that_waits_gives_its_pages_to_who_runs(bench_of: BenchOf) -> None:
    bench = bench_of(windows=(0,), context=640, sequences=1)  # 20 pages
    session = bench.runtime.session()
    talk = prompt(250) + say(session, prompt(250), 5)
    first = bench.runtime.submit(prompt(300, seed=1), GREEDY, 300)
    bench.runtime.step()
    turn = session.submit(talk, GREEDY, 20)
    assert turn.reused_tokens == 254
    answers = bench.finish()
    assert answers[first.id] == bench.answer(prompt(300, seed=1), 300)
    assert answers[turn.id] == bench.answer(talk, 20)
    assert bench.runtime.stats.preemptions == 0
