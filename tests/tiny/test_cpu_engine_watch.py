"""Watched rows in a real engine: the same mass in every way of running them, logits that do not know of it, and an answer under
a policy that chooses by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from synthetic import GEMMA, LLAMA, TinyModel

from edge.contract import MASS_STEPS, SEAL_TOKENS, WATCH_ROWS

pytest.importorskip("edge._core", reason="needs the native core: pip install .")
pytest.importorskip("onnxruntime", reason="needs the build extra")

from built_engine import Built, random_ids

from edge.config import InferenceConfig
from edge.errors import ExecutorError
from edge.executors.base import StepInput
from edge.executors.native import NativeExecutor, load_core
from edge.kv_eval.fed_sequence import FedSequence
from edge.manifest import Limits
from edge.pages.fit import fit_pool
from edge.pages.geometry import page_groups, pages_for
from edge.pages.pool import Pool
from edge.pages.sequence import SequencePages
from edge.policies import PolicyName, peak_share
from edge.presets import PRESETS
from edge.request import SequenceTokens
from edge.runtime import Runtime
from edge.sampling import SamplingParams

BuildOf = Callable[[TinyModel, str], Built]
TOKENS = 600
MODELS = {
    "2 heads a kv head": replace(LLAMA, head_dim=64, hidden=128),
    "5 heads of odd width": replace(LLAMA, head_dim=40, hidden=80, heads=5, kv_heads=1),
    "windows and a soft cap": replace(GEMMA, head_dim=32, heads=4, attention_soft_cap=5.0),
}


def fed_in(built: Built, isa: str = "auto", threads: int = 2, policy: PolicyName = "attention") -> list[FedSequence]:
    """Two empty sequences at `balanced`."""
    groups = page_groups(built.spec, PRESETS["balanced"], raised_share=peak_share(policy))
    size = fit_pool(groups, TOKENS + SEAL_TOKENS, 2, 1 << 21)
    limits = Limits(TOKENS + SEAL_TOKENS, SEAL_TOKENS, 2, SEAL_TOKENS)
    executor = NativeExecutor.open(built.folder, built.spec, limits, pool_bytes=size.pool_bytes, threads=threads, isa=isa)
    pool, max_pages = Pool(size), pages_for(TOKENS + SEAL_TOKENS)
    sequences = [SequenceTokens(number, True, SequencePages(pool, groups, max_pages)) for number in range(2)]
    fed = [FedSequence(executor, pool, groups, sequence, policy) for sequence in sequences]
    for each in fed:
        each.begin()
    return fed


def step_of(rows: Sequence[tuple[FedSequence, Sequence[int], int]]) -> StepInput:
    """(sequence, new tokens, watched) each, in pages that are there: nothing is committed, so it can be run again."""
    ends = np.cumsum([len(tokens) for _, tokens, _ in rows])
    return StepInput(
        token_ids=np.array([token for _, tokens, _ in rows for token in tokens], np.int32),
        query_start=np.concatenate([[0], ends]).astype(np.int32),
        kv_len=np.array([sequence.length + len(tokens) for sequence, tokens, _ in rows], np.int32),
        page_table=np.stack([sequence.tokens.pages.words() for sequence, _, _ in rows], axis=1),
        page_moves=np.empty((0, 4), np.int32),
        logit_rows=(ends - 1).astype(np.int32),
        watch=np.array([watched for *_, watched in rows], np.int32),
    )


@pytest.mark.parametrize("model", MODELS)
def test_mass_is_the_same_in_every_way_of_running_a_prompt(build: BuildOf, model: str) -> None:
    built = build(MODELS[model], "int4")
    ids, found = random_ids(built.spec, TOKENS, 1), []
    for isa, threads in [("plain", 1), *((isa, 2) for isa in load_core().instruction_sets()[1:]), ("auto", 3)]:
        sequence, _ = fed_in(built, isa, threads)
        sequence.feed_all(ids)
        found.append(sequence._watch.mass.copy())
        sequence.executor.close()
    assert all(np.array_equal(mass, found[0]) for mass in found)
    for group, layers in enumerate(built.spec.groups):
        whole = WATCH_ROWS * built.spec.num_heads * len(layers) * MASS_STEPS
        assert abs(found[0][group].sum() / whole - 1) < 1e-3
        window = built.spec.group_windows[group]
        assert not window or not found[0][group, : (TOKENS - WATCH_ROWS - window) // 32].any()


@pytest.mark.parametrize("model", MODELS)
def test_a_step_gives_the_same_logits_whether_its_rows_are_watched_or_not(build: BuildOf, model: str) -> None:
    built = build(MODELS[model], "int4")
    ids = random_ids(built.spec, TOKENS, 1)
    sequence, other = fed_in(built)
    executor = sequence.executor
    sequence.feed_all(ids[:570])
    other.feed_all(ids[:321])
    try:
        for count in (1, 5, 6):  # pages stand up to 576
            plain = executor.run(replace(step_of([(sequence, ids[:count], 0)]), watch=np.empty(0, np.int32)))
            logits = plain.logits.copy()
            assert plain.mass.size == 0
            alone = executor.run(step_of([(sequence, ids[:count], count)]))
            mass = alone.mass[:, 0].copy()
            assert np.array_equal(alone.logits, logits) and mass.any()
            beside = executor.run(step_of([(other, ids[:30], 7), (sequence, ids[:count], count)]))
            assert np.array_equal(beside.logits[1:], logits) and np.array_equal(beside.mass[:, 1], mass)
            # Row by row, as chunks may cut them: what was appended by the whole step stands in the pages already.
            parts = [executor.run(step_of([(sequence, ids[:end], 1)])).mass[:, 0].copy() for end in range(1, count + 1)]
            assert np.array_equal(sum(parts), mass)
    finally:
        executor.close()


def test_more_watched_rows_than_there_are_or_than_the_limit_are_refused(build: BuildOf) -> None:
    built = build(MODELS["2 heads a kv head"], "int4")
    sequence, _ = fed_in(built)
    sequence.feed_all(random_ids(built.spec, 500, 1))
    for count, watched in ((3, 4), (3, -1), (12, 65)):
        with pytest.raises(ExecutorError, match="more rows of a sequence are watched"):
            sequence.executor.run(step_of([(sequence, [1] * count, watched)]))
    sequence.executor.close()


def answers(built: Built, policy: PolicyName, prompts: Sequence[list[int]], sequences: int, chunk: int) -> list[list[int]]:
    limits = Limits(TOKENS + SEAL_TOKENS, 2 * SEAL_TOKENS, sequences, sequences)
    context, step_tokens = limits.max_context, limits.max_step_tokens
    config = InferenceConfig(context, step_tokens, chunk, 1 << 21, "fitted", 0.92, "balanced", True, policy, False)
    groups = page_groups(built.spec, PRESETS["balanced"], raised_share=peak_share(policy))
    size = fit_pool(groups, limits.max_context, sequences, 1 << 21, chunk)
    executor = NativeExecutor.open(built.folder, built.spec, limits, pool_bytes=size.pool_bytes, threads=2)
    with Runtime(built.spec, executor, size, limits, config, "balanced", policy) as runtime:
        requests = [runtime.submit(prompt, SamplingParams(), 40) for prompt in prompts]
        while runtime.has_work:
            runtime.step()
            runtime.check()
        assert runtime.stats.preemptions == 0
        return [request.token_ids for request in requests]


@pytest.mark.parametrize("model", MODELS)
def test_an_answer_by_attention_is_the_same_alone_and_beside_others(build: BuildOf, model: str) -> None:
    built = build(MODELS[model], "int4")
    prompts = [random_ids(built.spec, length, length) for length in (600, 480, 555)]
    alone = [answers(built, "attention", [prompt], 1, 128)[0] for prompt in prompts]
    assert answers(built, "attention", prompts, 3, 48) == alone


def test_a_fed_sequence_ends_its_prompt_as_a_request_does(build: BuildOf) -> None:
    built = build(MODELS["2 heads a kv head"], "int4")
    prompt = random_ids(built.spec, 600, 3)
    expected = answers(built, "attention", [prompt], 1, 128)[0]
    sequence, _ = fed_in(built)
    sequence.feed_all(prompt[:-1])
    sequence.feed_all(prompt[-1:])  # the rows of this call alone are watched
    few = sequence._watch.mass.sum()
    sequence.begin()
    sequence.feed_all(prompt)
    assert 0 < few < sequence._watch.mass.sum() / 32
    before = sequence.bytes_by_format()
    sequence.end_prefill()
    after = sequence.bytes_by_format()
    assert set(before) == {"fp16", "int8", "int4"} and before["int4"] < after["int4"]
    assert 0 < after["int8"] < 0.2 * before["int8"]
    found = expected[:1]
    while len(found) < len(expected):
        found.append(int(sequence.feed(found[-1:], 1)[0].argmax()))
    assert found == expected
    sequence.executor.close()
