"""The CPU engine of tiny models: against the reference, and against itself in every way of running it."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import GEMMA, LLAMA, TinyModel

from edge import contract
from edge.errors import ConfigError, ExecutorError, PackageError
from edge.spec import ModelSpec

pytest.importorskip("edge._core", reason="needs the native core: pip install .")
pytest.importorskip("onnxruntime", reason="needs the build extra")

from calibration.tiers import load_tier
from edge.comparison import Comparison
from edge.executors.base import StepInput
from edge.executors.native import NativeExecutor, load_core
from edge.manifest import Limits
from edge.progress import SilentProgress
from edge.teacher import Teacher, teacher_pool_bytes
from engines.build import write_engine
from engines.portable.export import write_portable
from engines.reference.ort import OrtReference
from engines.sources.base import open_source

TOKENS = 300  # three chunks: two full ones and a tail

MODELS = {
    "llama": "llama_published",
    "llama untied": "llama_untied",
    "llama odd widths": "llama_odd_widths",
    "llama one kv head": "llama_one_kv_head",
    "gemma": "gemma_published",
    "gemma soft caps": "gemma_soft_caps",
    "gemma odd widths": "gemma_odd_widths",
}


class Built:
    """An engine folder, its spec and the ONNX that it was lowered from."""

    def __init__(self, folder: Path, onnx: Path, spec: ModelSpec) -> None:
        self.folder, self.onnx, self.spec = folder, onnx, spec

    def teacher(self, isa: str = "auto", threads: int = 2, chunk: int = contract.SEAL_TOKENS) -> Teacher:
        limits = Limits(TOKENS, contract.SEAL_TOKENS, 4, contract.SEAL_TOKENS)
        pool_bytes = teacher_pool_bytes(self.spec, TOKENS)
        executor = NativeExecutor.open(self.folder, self.spec, limits, pool_bytes=pool_bytes, threads=threads, isa=isa)
        return Teacher(executor, self.spec, TOKENS, chunk)

    def logits(self, ids: list[int], **how: object) -> np.ndarray:
        teacher = self.teacher(**how)  # type: ignore[arg-type]
        try:
            return np.concatenate([rows.copy() for rows in teacher.rows(ids)])
        finally:
            teacher.executor.close()


@pytest.fixture(scope="module")
def build(
    tiny_gguf: Callable[[str | TinyModel], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str | TinyModel, str], Built]:
    """build(model, tier) -> Built, each pair once."""
    known: dict[str, Built] = {}

    def built(model: str | TinyModel, tier: str) -> Built:
        key = f"{model} {tier}"
        if key not in known:
            folder = tmp_path_factory.mktemp("engine")
            source = open_source(tiny_gguf(model))
            write_portable(source, load_tier(tier), folder / "tier.onnx")
            write_engine(folder / "tier.onnx", folder / "engine", SilentProgress())
            known[key] = Built(folder / "engine", folder / "tier.onnx", source.spec)
        return known[key]

    return built


def _ids(spec: ModelSpec, count: int = TOKENS, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(4, spec.vocab_size, count).tolist()


@pytest.mark.parametrize("tier", ["fp16", "int8", "int4"])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_engine_agrees_with_the_reference(build: Callable[[str, str], Built], model: str, tier: str) -> None:
    built = build(model, tier)
    ids = _ids(built.spec)
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
    ids = _ids(built.spec)
    expected = built.logits(ids, isa="plain", threads=1)
    for isa in load_core().instruction_sets():
        for threads in (1, 2, 3):
            assert np.array_equal(built.logits(ids, isa=isa, threads=threads), expected), (isa, threads)


@pytest.mark.parametrize("model", ["llama_published", "gemma_published"])
def test_chunks_of_any_size_give_the_same_bits(build: Callable[[str, str], Built], model: str) -> None:
    built = build(model, "int4")
    ids = _ids(built.spec)
    expected = built.logits(ids)
    for chunk in (1, 7, 100):
        assert np.array_equal(built.logits(ids, chunk=chunk), expected), chunk


def test_a_sequence_gives_the_same_bits_alone_and_beside_others(build: Callable[[str, str], Built]) -> None:
    built = build("gemma_published", "int4")
    spec = built.spec
    lengths = (40, 1, 17)
    sequences = [_ids(spec, length, seed) for seed, length in enumerate(lengths)]
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
    assert np.array_equal(together, np.concatenate(alone))
    executor.close()


def test_a_page_move_changes_no_bit(build: Callable[[str, str], Built]) -> None:
    built = build("llama_published", "int4")
    ids = _ids(built.spec, 34)
    expected = built.logits(ids)[33]
    teacher = built.teacher()
    last = None
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
    assert np.array_equal(last[0], expected)
    teacher.executor.close()


def test_a_page_behind_the_window_is_not_read(build: Callable[[str, str], Built]) -> None:
    built = build("gemma_published", "int4")
    ids = _ids(built.spec, 65)
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
    assert np.array_equal(teacher.executor.run(step)[0], expected)
    table[1 - windowed, 0, 0] = contract.EMPTY
    with pytest.raises(ExecutorError, match="missing"):
        teacher.executor.run(step)
    teacher.executor.close()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"token_ids": np.array([10**6], dtype=np.int32)}, "outside the vocabulary"),
        ({"kv_len": np.array([0], dtype=np.int32)}, "shorter than"),
        ({"kv_len": np.array([TOKENS + 1], dtype=np.int32)}, "longer than"),
        ({"logit_rows": np.array([1], dtype=np.int32)}, "outside the step"),
        ({"query_start": np.array([0, 2], dtype=np.int32)}, "does not cover"),
        ({"page_moves": np.array([[0, 2, 0, 0]], dtype=np.int32)}, "names no extent"),
        ({"page_moves": np.array([[0, 0, 1 << 28, 0]], dtype=np.int32)}, "other than fp16"),
        ({"page_moves": np.array([[0, 0, contract.OFFSET_MASK, 0]], dtype=np.int32)}, "outside the pool"),
    ],
)
def test_a_step_that_would_read_elsewhere_is_refused(
    build: Callable[[str, str], Built], change: dict[str, np.ndarray], reason: str
) -> None:
    built = build("llama_published", "int4")
    teacher = built.teacher()
    step = StepInput(
        token_ids=np.array([5], dtype=np.int32),
        query_start=np.array([0, 1], dtype=np.int32),
        kv_len=np.array([1], dtype=np.int32),
        page_table=teacher._page_table(),
        page_moves=np.empty((0, 4), dtype=np.int32),
        logit_rows=np.array([0], dtype=np.int32),
    )
    teacher.executor.run(step)
    with pytest.raises(ExecutorError, match=reason):
        teacher.executor.run(replace(step, **change))
    teacher.executor.close()


def test_head_dims_of_real_models_run(build: Callable[[TinyModel, str], Built]) -> None:
    for model in (replace(LLAMA, head_dim=64, hidden=128), replace(GEMMA, head_dim=256, hidden=128, heads=2)):
        built = build(model, "int4")
        ids = _ids(built.spec, 140)
        assert np.array_equal(built.logits(ids), built.logits(ids, isa="plain", threads=1))


def _run_often(teacher: Teacher, ids: list[int]) -> None:
    for _ in range(1000):
        next(teacher.rows(ids))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("rows", [0, 1])
def test_a_cancelled_step_ends_early_and_the_engine_goes_on(
    build: Callable[[str, str], Built], threads: int, rows: int
) -> None:
    built = build("llama_published", "int4")
    teacher = built.teacher(threads=threads)
    ids = _ids(built.spec, 128)
    step = StepInput(
        token_ids=np.array(ids, dtype=np.int32),
        query_start=np.array([0, 128], dtype=np.int32),
        kv_len=np.array([128], dtype=np.int32),
        page_table=teacher._page_table(),
        page_moves=np.empty((0, 4), dtype=np.int32),
        logit_rows=np.arange(rows, dtype=np.int32),
    )
    expected = teacher.executor.run(step).copy()
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
    assert np.array_equal(teacher.executor.run(step), expected)
    teacher.executor.close()


def test_threads_out_of_range_are_refused(build: Callable[[str, str], Built]) -> None:
    built = build("llama_published", "int4")
    for threads in (0, 40_000):
        with pytest.raises(ConfigError, match="must be 1 to"):
            built.teacher(threads=threads)


def _open_changed(folder: Path, spec: ModelSpec, tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "engine"))
    document = json.loads((copy / "plan.json").read_text())
    change(document)
    (copy / "plan.json").write_text(json.dumps(document))
    limits = Limits(64, 64, 1, 64)
    NativeExecutor.open(copy, spec, limits, pool_bytes=teacher_pool_bytes(spec, 64), threads=1).close()


def _step(document: dict[str, Any], op: str) -> dict[str, Any]:
    return next(step for step in document["steps"] if step["op"] == op)


def _tensor(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(tensor for tensor in document["tensors"] if tensor["name"] == name)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: _step(d, "embed").update(weight0="layers.0.attn.q_proj.weight"),
        lambda d: _step(d, "project").pop("weight2"),
        lambda d: _step(d, "project").update(norm="layers.0.attn.q_proj.weight"),
        lambda d: _step(d, "attend").update(group=7),
        lambda d: _step(d, "attend").update(group_layer=-1),
        lambda d: _step(d, "attend").update(group_layer=1),
        lambda d: _step(d, "attend").update(group_layer=2**31 - 1),
        lambda d: _step(d, "attend").update(group_layer=2**40),
        lambda d: d["steps"].pop(),
        lambda d: d["steps"].pop(0),
        lambda d: d["steps"].insert(1, d["steps"].pop(2)),
        lambda d: d["steps"].__delitem__(slice(1, 6)),
        lambda d: _step(d, "attend").update(window=5),
        lambda d: _step(d, "attend").update(inv_freq="final_norm.weight"),
        lambda d: _step(d, "add").update(input="feed_forward"),
        lambda d: _step(d, "add").update(weight1="layers.0.attn.o_proj.weight"),
        lambda d: _step(d, "gated").update(activation="none"),
        lambda d: _step(d, "head").pop("norm"),
        lambda d: _tensor(d, "layers.1.ffn.up_proj.weight").update(outputs=10**6),
        lambda d: _tensor(d, "layers.1.ffn.up_proj.weight").update(offset=1 << 40),
        lambda d: _tensor(d, "layers.1.ffn.up_proj.weight").update(offset=100),
        lambda d: _tensor(d, "layers.1.ffn.up_proj.weight").update(group=8),
        lambda d: _tensor(d, "layers.1.ffn.up_proj.weight").update(minima=False, group=16),
        lambda d: d["steps"].clear(),
    ],
)
def test_a_plan_that_would_read_elsewhere_is_refused_when_opened(
    build: Callable[[str, str], Built], tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    built = build("gemma_published", "int4")
    with pytest.raises(PackageError, match="edge build"):
        _open_changed(built.folder, built.spec, tmp_path, change)


def test_a_weight_file_that_was_cut_off_is_refused(build: Callable[[str, str], Built], tmp_path: Path) -> None:
    built = build("llama_published", "int4")
    copy = Path(shutil.copytree(built.folder, tmp_path / "engine"))
    with (copy / "weights.bin").open("r+b") as file:
        file.truncate(8192)
    with pytest.raises(PackageError, match=r"weights\.bin: has 8192 bytes"):
        NativeExecutor.open(copy, built.spec, Limits(64, 64, 1, 64), pool_bytes=4096, threads=1)


def test_an_instruction_set_that_is_not_here_is_refused(build: Callable[[str, str], Built]) -> None:
    built = build("llama_published", "int4")
    with pytest.raises(ConfigError, match="plain"):
        built.teacher(isa="quantum")
