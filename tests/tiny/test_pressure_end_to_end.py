"""Demotion on a real engine: a step of moves alone, and a text that is longer than what the pool holds at its preset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from synthetic import GEMMA, LLAMA, TinyModel

from edge.contract import OFFSET_UNIT, PAGE_FORMATS, SEAL_TOKENS, extent_bytes, page_word, part_bytes
from edge.errors import ExecutorError

pytest.importorskip("edge._core", reason="needs the native core: pip install .")
pytest.importorskip("onnxruntime", reason="needs the build extra")

from built_engine import Built

from edge.config import InferenceConfig
from edge.executors.base import StepInput
from edge.executors.native import NativeExecutor, load_core
from edge.manifest import Limits
from edge.pages.fit import cut_pool, fit_pool
from edge.pages.geometry import page_groups
from edge.presets import PRESETS
from edge.runtime import Runtime
from edge.sampling import SamplingParams

WINDOWED = replace(GEMMA, head_dim=32)  # two layer groups
PLACE = 1 << 16  # bytes apart


def moves_of(groups: int, rows: Sequence[tuple[int, int, int, int]]) -> StepInput:
    none = np.empty(0, np.int32)
    table = np.empty((groups, 0, 4, 2), np.int32)
    return StepInput(none, np.zeros(1, np.int32), none, table, np.array(rows, np.int32).reshape(-1, 4), none)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_step_of_moves_alone_writes_what_the_kernels_write(build: Callable[[TinyModel, str], Built], threads: int) -> None:
    built = build(WINDOWED, "int4")
    spec, limits = built.spec, Limits(256, SEAL_TOKENS, 1, 1)
    executor = NativeExecutor.open(built.folder, spec, limits, pool_bytes=16 * PLACE, threads=threads)
    try:
        pool, random = executor.pool, np.random.default_rng(5)
        for place, chain in enumerate((("fp16", "int8", "int4"), ("fp16", "int4", "int2"))):  # K, then V
            for group, layers in enumerate(spec.groups):
                begin = (place * 2 + group) * 4
                words = [page_word(PAGE_FORMATS[name], (begin + i) * PLACE) for i, name in enumerate(chain)]
                sizes = [extent_bytes(place == 1, name, len(layers), spec.num_kv_heads, spec.head_dim) for name in chain]
                halves = random.normal(size=sizes[0] // 2).astype(np.float16)
                pool[begin * PLACE : begin * PLACE + sizes[0]] = halves.view(np.uint8)
                for i in range(2):
                    before = pool.copy()
                    output = executor.run(moves_of(len(spec.groups), [(group, place, words[i], words[i + 1])]))
                    assert output.logits.shape[0] == 0 and not output.errors()
                    target = slice((begin + i + 1) * PLACE, (begin + i + 1) * PLACE + sizes[i + 1])
                    for part in range(len(layers) * spec.num_kv_heads):
                        bytes_of = [part_bytes(place == 1, name, spec.head_dim) for name in chain]
                        source = before[(begin + i) * PLACE + part * bytes_of[i] :][: bytes_of[i]]
                        wanted = np.zeros(bytes_of[i + 1], np.uint8)
                        formats = PAGE_FORMATS[chain[i]], PAGE_FORMATS[chain[i + 1]]
                        load_core().move_parts("plain", place, *formats, spec.head_dim, source.copy(), wanted)
                        np.testing.assert_array_equal(pool[target][part * len(wanted) :][: len(wanted)], wanted)
                    before[target] = pool[target]
                    np.testing.assert_array_equal(pool, before, err_msg="nothing else is written")
    finally:
        executor.close()


def test_a_step_of_nothing_is_refused(build: Callable[[TinyModel, str], Built]) -> None:
    built = build(WINDOWED, "int4")
    executor = NativeExecutor.open(built.folder, built.spec, Limits(256, SEAL_TOKENS, 1, 1), pool_bytes=PLACE, threads=1)
    try:
        with pytest.raises(ExecutorError, match="no tokens"):
            executor.run(moves_of(2, []))
        outside = page_word(0, 8 * PLACE // OFFSET_UNIT * OFFSET_UNIT)
        with pytest.raises(ExecutorError, match="outside the pool"):
            executor.run(moves_of(2, [(0, 0, outside, outside)]))
    finally:
        executor.close()


def test_a_text_beyond_the_presets_length_is_answered_with_pages_demoted(build: Callable[[TinyModel, str], Built]) -> None:
    built = build(replace(LLAMA, head_dim=32, context=2048, type="Q4_1"), "int4")
    groups = page_groups(built.spec, PRESETS["safe"], PRESETS["tight"])
    size = cut_pool(groups, int(fit_pool(groups, 2048, 1, 1 << 16).pool_bytes * 0.85), 1 << 16)
    limits = Limits(2048, 256, 1, 1)
    executor = NativeExecutor.open(built.folder, built.spec, limits, pool_bytes=size.pool_bytes, threads=2)
    with Runtime(built.spec, executor, size, limits, InferenceConfig.load(), "safe", "uniform", "tight") as runtime:
        ids = np.random.default_rng(1).integers(4, built.spec.vocab_size, 2000).tolist()
        request = runtime.submit(ids, SamplingParams(), 40)
        while runtime.has_work:
            for event in runtime.step():
                assert event.error is None
            runtime.check()
        stats = runtime.stats
        assert request.finish_reason == "length" and stats.pages_demoted > 0 and stats.preemptions == 0
        assert {"int8", "int4", "int2"} & set(request.kv_bytes["background"]) >= {"int4", "int2"}
        assert stats.pool.high_water_bytes <= size.pool_bytes
