"""Policies that choose by attention: raised while the prompt is computed, the best tenth kept, the rest demoted before anybody
reads again; the same answer alone, beside others, in other chunks and computed again."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from stand_in import Bench
from test_pressure import blind

from edge.anchors.zones import ANCHOR, BACKGROUND
from edge.contract import PAGE_TOKENS, WATCH_ROWS
from edge.errors import ExecutorError
from edge.executors.base import StepInput, StepOutput
from edge.pages.geometry import page_groups, sealed_end
from edge.policies import PolicyName
from edge.presets import PRESETS
from edge.sampling import SamplingParams
from edge.watch import PromptWatch

BenchOf = Callable[..., Any]  # stand_in.make_bench
GREEDY = SamplingParams()


def prompt(length: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(40), k=length)


def watching(bench_of: BenchOf, policy: PolicyName = "attention", **words: Any) -> Bench:
    given = {"windows": (0, 150, 150), "context": 1300, "sequences": 1, "preset": "balanced", "policy": policy}
    bench: Bench = bench_of(**{**given, **words})
    return bench


def answer_alone(bench_of: BenchOf, tokens: list[int], count: int, **words: Any) -> list[int]:
    bench = watching(bench_of, **words)
    request = bench.runtime.submit(tokens, GREEDY, count)
    return bench.finish()[request.id]


def raised_pages(bench: Bench, zones: bytes = b"", turns: int = 1) -> list[list[int]]:
    """By layer group, behind an answer of 20 tokens to a prompt of 1,000, or several such turns of 300 tokens."""
    session = bench.runtime.session()
    known: list[int] = []
    for turn in range(turns):
        known = session._sequence.token_ids + prompt(1000 if turns == 1 else 300, turn)
        list(session.generate(known, GREEDY, 20, zones=zones))
    bench.runtime.check()
    return [row.tolist() for row in session._sequence.pages.raised()]


def test_the_tenth_of_each_group_with_most_mass_stays_raised_and_all_else_is_at_the_preset(bench_of: BenchOf) -> None:
    bench = watching(bench_of)
    full, windowed = raised_pages(bench)
    assert len(full) == int(0.1 * 32) and len(windowed) <= 1
    mass = np.zeros(32, np.int64)
    for position in range(1000 - WATCH_ROWS, 1000):
        for page in range(position // PAGE_TOKENS + 1):
            mass[page] += (page * 37 + position * 3) % 101
    assert full == sorted(sorted(range(1, sealed_end(999)), key=lambda page: (mass[page], page))[-3:])


def test_a_watched_prompt_is_raised_until_it_ends_and_demoted_before_the_next_step(bench_of: BenchOf) -> None:
    bench = watching(bench_of)
    request = bench.runtime.submit(prompt(1000), GREEDY, 5)
    pages = request.sequence.pages
    while not request.token_ids:
        bench.runtime.step()
    assert len(pages.raised()[0]) == sealed_end(999) - 1 and request.watch.is_due(pages.length)
    bench.runtime.step()
    moved = [step for step in bench.executor.steps if not len(step.kv_len)]
    assert moved and len(bench.executor.steps[-1].kv_len) and len(pages.raised()[0]) == 3
    assert not request.watch.is_due(pages.length)
    bench.finish()


def test_only_the_last_rows_of_the_prompt_are_watched(bench_of: BenchOf) -> None:
    bench = watching(bench_of, chunk=33)
    bench.runtime.submit(prompt(1000), GREEDY, 5)
    bench.finish()
    spans = [
        (int(step.kv_len[0]) - int(step.watch[0]), int(step.kv_len[0])) for step in bench.executor.steps if len(step.watch)
    ]
    assert spans[0][0] == 1000 - WATCH_ROWS and spans[-1][1] == 1000
    assert all(a[1] == b[0] for a, b in itertools.pairwise(spans))


@pytest.mark.parametrize("policy", ["attention", "combined"])
def test_the_answer_is_the_same_alone_and_beside_others_in_other_chunks(bench_of: BenchOf, policy: PolicyName) -> None:
    texts = [prompt(length, length) for length in (1000, 650, 777)]
    alone = [answer_alone(bench_of, text, 30, policy=policy) for text in texts]
    together = watching(bench_of, policy=policy, sequences=3, step_tokens=150, chunk=49)
    requests = [together.runtime.submit(text, GREEDY, 30) for text in texts]
    found = together.finish()
    assert [found[request.id] for request in requests] == alone
    assert together.runtime.stats.preemptions == 0, "the pool is planned for pages that are raised"


def test_a_preempted_request_that_is_computed_again_gives_the_same_answer(bench_of: BenchOf) -> None:
    texts, small = [prompt(length, length) for length in (300, 280, 290)], {"context": 640, "windows": (0,)}
    alone = [answer_alone(bench_of, text, 150, **small) for text in texts]
    together = watching(bench_of, sequences=3, pool_share=0.4, **small)
    requests = [together.runtime.submit(text, GREEDY, 150) for text in texts]
    found = together.finish()
    assert together.runtime.stats.preemptions > 0, "the pool was meant to be too small"
    assert [found[request.id] for request in requests] == alone


def test_such_a_sequence_does_not_publish_and_uniform_does(bench_of: BenchOf) -> None:
    for policy, hits in (("attention", 0), ("uniform", 1)):
        bench = watching(bench_of, policy=policy)
        for _ in range(2):
            bench.runtime.submit(prompt(700), GREEDY, 5, cuts=(640,))
            bench.finish()
        assert bench.runtime.stats.prefix_hits == hits


def test_exact_has_nothing_to_raise_and_watches_nobody(bench_of: BenchOf) -> None:
    bench = watching(bench_of, preset="exact")
    request = bench.runtime.submit(prompt(700), GREEDY, 5)
    assert bench.finish()[request.id] == bench.answer(prompt(700), 5)
    assert all(not len(step.watch) and not len(step.page_moves) for step in bench.executor.steps)


def test_combined_keeps_headings_beside_what_has_most_mass(bench_of: BenchOf) -> None:
    zones = np.full(32, BACKGROUND, np.uint8)
    zones[[5, 9, 13]] = ANCHOR
    attention = raised_pages(watching(bench_of))[0]
    combined = raised_pages(watching(bench_of, policy="combined"), zones.tobytes())[0]
    assert len(combined) == len(attention) and set(combined) & {5, 9, 13} and set(combined) & set(attention)
    assert raised_pages(watching(bench_of, policy="combined"))[0] == attention, "without headings it is attention"


def test_each_turn_of_a_conversation_ends_with_a_tenth_raised(bench_of: BenchOf) -> None:
    bench = watching(bench_of)
    full = raised_pages(bench, turns=4)[0]
    assert 0 < len(full) <= int(0.1 * 40) and bench.runtime.stats.preemptions == 0


def test_in_deterministic_mode_a_conversation_goes_on_alike_whether_it_gave_its_pages_up_or_not(bench_of: BenchOf) -> None:
    came = []
    for disturbs in (False, True):
        bench = watching(bench_of, windows=(0,), deterministic=True)
        session = bench.runtime.session()
        list(session.generate(prompt(700), GREEDY, 20))
        if disturbs:
            bench.runtime.submit(prompt(1200, 1), GREEDY, 2)
            bench.finish()
            assert session.computed_tokens == 0, "the pool was meant to be too small for both"
        longer = session._sequence.token_ids + prompt(90, 2)
        came.append([event.token_id for event in session.generate(longer, GREEDY, 40)])
    assert came[0] == came[1]


def test_a_prompt_of_which_nothing_is_sealed_is_not_watched(bench_of: BenchOf) -> None:
    bench = watching(bench_of)
    for length, watched in ((256, 0), (257, WATCH_ROWS)):
        bench.runtime.submit(prompt(length), GREEDY, 5)
        bench.finish()
        assert sum(int(step.watch.sum()) for step in bench.executor.steps) == watched


@pytest.mark.parametrize("windows", [(0,), (0, 150, 150)])
@pytest.mark.parametrize("policy", ["attention", "combined"])
def test_a_pool_that_is_planned_for_it_holds_as_many_prompts_as_long_as_the_context(
    bench_of: BenchOf, policy: PolicyName, windows: tuple[int, ...]
) -> None:
    for context in (300, 640, 900):
        bench = blind(watching(bench_of, policy, windows=windows, context=context, sequences=2))
        requests = [bench.runtime.submit(prompt(context - 20, seed), GREEDY, 21) for seed in range(3)]
        bench.runtime.step()
        assert len(bench.runtime._queues.running_pages()) == 2
        bench.finish()
        assert all(request.finish_reason == "length" for request in requests)
        assert bench.runtime.stats.preemptions == 0


def test_an_engine_that_fails_to_demote_ends_that_request_and_the_others_go_on(bench_of: BenchOf) -> None:
    bench = watching(bench_of, windows=(0,), context=640, sequences=2)
    run = bench.executor.run

    def failing(step: StepInput) -> StepOutput:
        if not len(step.kv_len):
            raise ExecutorError("a step of moves failed")
        return run(step)

    bench.executor.run = failing  # type: ignore[method-assign]
    long, short = bench.runtime.submit(prompt(500), GREEDY, 9), bench.runtime.submit(prompt(100), GREEDY, 9)
    bench.finish()
    assert (long.finish_reason, short.finish_reason) == ("error", "length")
    assert bench.runtime.stats.pool.used_bytes == 0


def test_a_sequence_that_is_computed_again_counts_its_rows_anew() -> None:
    from stand_in import make_spec

    groups = page_groups(make_spec((0,), 32), PRESETS["balanced"], raised_share=1.0)
    watch = PromptWatch.of("attention", groups, 300, 10)
    assert [watch.rows(200, 232), watch.rows(232, 264), watch.rows(264, 300), watch.rows(300, 301)] == [0, 28, 36, 0]
    assert watch.chunk_limit(264, 330) == 300 and watch.chunk_limit(300, 330) == 330
    for start, end in ((236, 264), (264, 300), (230, 300)):
        watch.add(start, end, np.full((1, 10), 5, np.int64))
    assert watch.mass.tolist() == [[5] * 10] and watch.is_due(300) and not watch.is_due(299)
