"""The CPU engine of tiny models: against the reference, and against itself in every way of running it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from synthetic import GEMMA, LLAMA, TinyModel

from edge import contract
from edge.errors import ExecutorError

pytest.importorskip("edge._core", reason="needs the native core: pip install .")
pytest.importorskip("onnxruntime", reason="needs the build extra")

from built_engine import Built, random_ids

from edge.comparison import Comparison
from edge.executors.base import StepInput
from edge.executors.native import NativeExecutor
from edge.executors.native_core import load_core
from edge.manifest import Limits
from edge.teacher import teacher_pool_bytes
from engines.reference.ort import OrtReference

MODELS = {
    "llama": "llama_published",
    "llama untied": "llama_untied",
    "llama odd widths": "llama_odd_widths",
    "llama one kv head": "llama_one_kv_head",
    "gemma": "gemma_published",
    "gemma soft caps": "gemma_soft_caps",
    "gemma odd widths": "gemma_odd_widths",
}


@pytest.mark.parametrize("tier", ["fp16", "int8", "int4"])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_engine_agrees_with_the_reference(build: Callable[[str, str], Built], model: str, tier: str) -> None:
    built = build(model, tier)
    ids = random_ids(built.spec)
    ours = built.logits(ids)
    reference = np.concatenate(list(OrtReference(built.onnx, 2).logits(ids, 128)))
    found = Comparison()
    found.add(reference, ours, np.array(ids[1:]))
    # fp16 weights leave fp16 pages as the only rounding; the others also quantise activations to int8.
    assert found.kl_mean < (2e-5 if tier == "fp16" else 0.02)
    scale = np.abs(reference).max()
    assert np.abs(ours - reference).max() < (0.02 if tier == "fp16" else 0.35) * scale


@pytest.mark.parametrize("model", ["llama_published", "gemma_published"])
@pytest.mark.parametrize("tier", ["fp16", "int8", "int4"])
def test_every_instruction_set_and_thread_count_gives_the_same_bits(
    build: Callable[[str, str], Built], model: str, tier: str
) -> None:
    built = build(model, tier)
    ids = random_ids(built.spec)
    expected = built.logits(ids, isa="plain", threads=1)
    for isa in load_core().instruction_sets():
        for threads in (1, 2, 3):
            assert np.array_equal(built.logits(ids, isa=isa, threads=threads), expected), (isa, threads)


@pytest.mark.parametrize("model", ["llama_published", "gemma_published"])
def test_chunks_of_any_size_give_the_same_bits(build: Callable[[str, str], Built], model: str) -> None:
    built = build(model, "int4")
    ids = random_ids(built.spec)
    expected = built.logits(ids)
    for chunk in (1, 7, 100):
        assert np.array_equal(built.logits(ids, chunk=chunk), expected), chunk


def test_a_sequence_gives_the_same_bits_alone_and_beside_others(build: Callable[[str, str], Built]) -> None:
    built = build("gemma_published", "int4")
    spec = built.spec
    lengths = (40, 1, 17)
    sequences = [random_ids(spec, length, seed) for seed, length in enumerate(lengths)]
    alone = [built.logits(ids) for ids in sequences]
    pages = 2
    limits = Limits(64, 128, 3, 128)
    groups = len(spec.groups)
    stride = max(teacher_pool_bytes(spec, 32), 4096)
    pool_bytes = stride * groups * 3 * pages * 2
    table = np.arange(groups * 3 * pages * 2, dtype=np.int32).reshape(groups, 3, pages, 2) * (stride // contract.OFFSET_UNIT)
    executor = NativeExecutor.open(built.folder, spec, limits, pool_bytes=pool_bytes, threads=2)
    together = executor.run(
        StepInput(
            token_ids=np.concatenate(sequences).astype(np.int32),
            query_start=np.array([0, *np.cumsum(lengths)], dtype=np.int32),
            kv_len=np.array(lengths, dtype=np.int32),
            page_table=table,
            page_moves=np.empty((0, 4), dtype=np.int32),
            logit_rows=np.arange(sum(lengths), dtype=np.int32),
        )
    )
    assert np.array_equal(together.logits, np.concatenate(alone))
    executor.close()


def test_a_page_move_changes_no_bit(build: Callable[[str, str], Built]) -> None:
    built = build("llama_published", "int4")
    ids = random_ids(built.spec, 34)
    expected = built.logits(ids)[33]
    teacher = built.teacher()
    for _ in teacher.rows(ids[:33]):
        pass
    table = teacher._page_table()
    moved = table.copy()
    moved[0, 0, 0, 0] = table[0, 0, -1, 0]  # a page that these tokens do not use
    last = teacher.executor.run(
        StepInput(
            token_ids=np.array(ids[33:], dtype=np.int32),
            query_start=np.array([0, 1], dtype=np.int32),
            kv_len=np.array([34], dtype=np.int32),
            page_table=moved,
            page_moves=np.array([[0, 0, table[0, 0, 0, 0], moved[0, 0, 0, 0]]], dtype=np.int32),
            logit_rows=np.array([0], dtype=np.int32),
        )
    )
    assert np.array_equal(last.logits[0], expected)
    teacher.executor.close()


def test_a_page_behind_the_window_is_not_read(build: Callable[[str, str], Built]) -> None:
    built = build("gemma_published", "int4")
    ids = random_ids(built.spec, 65)
    expected = built.logits(ids)[64]
    teacher = built.teacher()
    for _ in teacher.rows(ids[:64]):
        pass
    table = teacher._page_table()
    windowed = built.spec.group_windows.index(8)
    table[windowed, 0, 0] = contract.EMPTY  # positions 0 to 31, the query stands at 64
    step = StepInput(
        token_ids=np.array(ids[64:], dtype=np.int32),
        query_start=np.array([0, 1], dtype=np.int32),
        kv_len=np.array([65], dtype=np.int32),
        page_table=table,
        page_moves=np.empty((0, 4), dtype=np.int32),
        logit_rows=np.array([0], dtype=np.int32),
    )
    assert np.array_equal(teacher.executor.run(step).logits[0], expected)
    table[1 - windowed, 0, 0] = contract.EMPTY
    with pytest.raises(ExecutorError, match="missing"):
        teacher.executor.run(step)
    teacher.executor.close()


def test_head_dims_of_real_models_run(build: Callable[[TinyModel, str], Built]) -> None:
    for model in (replace(LLAMA, head_dim=64, hidden=128), replace(GEMMA, head_dim=256, hidden=128, heads=2)):
        built = build(model, "int4")
        ids = random_ids(built.spec, 140)
        assert np.array_equal(built.logits(ids), built.logits(ids, isa="plain", threads=1))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("rows", [0, 1])
def test_a_cancelled_step_ends_early_and_the_engine_goes_on(
    build: Callable[[str, str], Built], threads: int, rows: int
) -> None:
    built = build("llama_published", "int4")
    teacher = built.teacher(threads=threads)
    ids = random_ids(built.spec, 128)
    step = StepInput(
        token_ids=np.array(ids, dtype=np.int32),
        query_start=np.array([0, 128], dtype=np.int32),
        kv_len=np.array([128], dtype=np.int32),
        page_table=teacher._page_table(),
        page_moves=np.empty((0, 4), dtype=np.int32),
        logit_rows=np.arange(rows, dtype=np.int32),
    )
    expected = teacher.executor.run(step).logits.copy()
    stop = threading.Event()

    def keep_cancelling() -> None:
        while not stop.wait(0.0001):
            teacher.executor.cancel()

    canceller = threading.Thread(target=keep_cancelling)
    canceller.start()
    ended = 0
    try:
        for _ in range(3000):
            try:
                teacher.executor.run(step)
            except ExecutorError:
                ended += 1
    finally:
        stop.set()
        canceller.join()
    assert ended > 0
    assert np.array_equal(teacher.executor.run(step).logits, expected)
    teacher.executor.close()
