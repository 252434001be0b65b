"""Steps that are repeated rather than planned: what the scheduler would have said, and no more of them than that."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from edge.executors.base import StepInput
from edge.pages.read_budget import Reading, ReadTokens
from edge.presets import PresetName
from edge.sampling import SamplingParams
from edge.scheduler.state import Chunk, StepPlan

GREEDY = SamplingParams()


def prompt(length: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(40), k=length)


@pytest.mark.parametrize("preset", ["exact", "balanced"])
@pytest.mark.parametrize("windows", [(0,), (0, 40, 40), (16, 200)])
def test_a_repeated_step_is_what_the_scheduler_would_plan(
    bench_of: Callable[..., Any], windows: tuple[int, ...], preset: PresetName
) -> None:
    bench = bench_of(windows=windows, preset=preset)
    runtime = bench.runtime
    requests = [runtime.submit(prompt(90 * i + 5, i), GREEDY, 150 + 40 * i) for i in range(3)]
    repeated = 0
    while runtime.has_work:
        if (steady := runtime._steady) is not None:
            repeated += 1
            planned = runtime._choice.next_step()
            assert isinstance(planned, StepPlan) and not planned.extents
            lengths = [request.sequence.pages.length for request in steady.requests]
            assert planned.chunks == tuple(
                Chunk(request.id, length, length + 1, True, ())
                for request, length in zip(steady.requests, lengths, strict=True)
            )
            assert planned.admitted == ()
        runtime.step()
        runtime.check()
    assert [request.token_ids for request in requests] == [bench.answer(prompt(90 * i + 5, i), 150 + 40 * i) for i in range(3)]
    assert repeated > 0.7 * runtime.stats.steps


def test_a_sequence_alone_plans_where_a_page_begins_and_no_oftener(bench_of: Callable[..., Any]) -> None:
    runtime = bench_of(windows=(0,), sequences=1).runtime
    runtime.submit(prompt(32, 0), GREEDY, 129)
    planned = 0
    while runtime.has_work:
        planned += runtime._steady is None
        runtime.step()
    assert planned == 1 + 4  # the prompt, and the first token of each of four pages


def test_a_request_that_arrives_is_not_made_to_wait(bench_of: Callable[..., Any]) -> None:
    runtime = bench_of(windows=(0,)).runtime
    first = runtime.submit(prompt(3, 0), GREEDY, 20)
    runtime.step()
    runtime.step()
    assert runtime._steady is not None
    second = runtime.submit(prompt(3, 1), GREEDY, 20)
    assert [event.request_id for event in runtime.step()] == [first.id, second.id]
    runtime.cancel(first.id)
    assert [event.request_id for event in runtime.step() if event.token_id is not None] == [second.id]


def test_a_step_reads_tables_and_lengths_of_its_moment(bench_of: Callable[..., Any]) -> None:
    bench = bench_of(windows=(0,), sequences=1)
    lengths: list[int] = []
    run = bench.executor.run

    def noted(step: StepInput) -> Any:
        lengths.append(int(step.kv_len[0]))
        return run(step)

    bench.executor.run = noted
    bench.runtime.submit(prompt(3, 0), GREEDY, 40)
    bench.finish()
    assert lengths == [3, *range(4, 43)]


@pytest.mark.parametrize("chunk", [48, 128])
def test_a_prompt_reads_all_pages_however_it_is_cut_and_when_it_is_computed_again(
    bench_of: Callable[..., Any], chunk: int
) -> None:
    runtime = bench_of(windows=(0,), context=900, chunk=chunk, preset="balanced").runtime
    request = runtime.submit(prompt(817, 0), GREEDY, 20)
    while len(request.token_ids) < 3:
        assert runtime._steady is None or request.token_ids, "the last token of the prompt is no answer"
        runtime.step()
    request.reading, length = Reading(ReadTokens(128)), len(request.sequence.token_ids)
    assert request.wanted_pages(length - 1, length) != 0
    assert request.wanted_pages(511, 512) == request.wanted_pages(700, 701) == request.wanted_pages(length - 2, length) == 0
