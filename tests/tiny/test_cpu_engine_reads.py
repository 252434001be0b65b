"""Rows that read some of their sealed pages: which ones, the same bits in every way of running them, what a probe tells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from synthetic import GEMMA, LLAMA, TinyModel

from edge.contract import FORMAT_SHIFT, PAGE_FORMATS, PAGE_TOKENS, SEAL_TOKENS

pytest.importorskip("edge._core", reason="needs the native core: pip install .")
pytest.importorskip("onnxruntime", reason="needs the build extra")

from built_engine import Built, random_ids

from edge.errors import ExecutorError
from edge.executors.base import StepInput
from edge.executors.native import NativeExecutor, load_core
from edge.kv_eval.fed_sequence import FedSequence, fed_sequences, shared_pool
from edge.kv_eval.forms import forms_of
from edge.manifest import Limits
from edge.pages.pool import Pool
from edge.pages.sequence import word_offset
from edge.presets import PresetName
from engines.portable.reader import read_portable
from engines.reference.numpy_forward import _rms_norm, _rotate

BuildOf = Callable[[TinyModel, str], Built]
TOKENS, SEALED = 600, 11  # pages 1 to 11 of those that a query at 600 sees; the first is the sink, 12 to 18 are open
ONE_LAYER = replace(LLAMA, head_dim=64, hidden=128, layers=1)
MODELS = {
    "2 heads a kv head": replace(LLAMA, head_dim=64, hidden=128),
    "5 heads of odd width": replace(LLAMA, head_dim=40, hidden=80, heads=5, kv_heads=1),
    "windows": replace(GEMMA, head_dim=32, heads=4),
    "soft cap": replace(GEMMA, head_dim=32, attention_soft_cap=5.0),
}
PRESETS: tuple[PresetName, ...] = ("exact", "safe", "balanced")
FORMS = forms_of(PRESETS)
Row = tuple[np.ndarray, float]  # logits [vocabulary], omitted


@contextmanager
def sequences(built: Built, isa: str = "auto", threads: int = 2) -> Iterator[dict[str, FedSequence]]:
    """One of each preset with TOKENS tokens, of its own ones."""
    size = shared_pool(built.spec, FORMS, TOKENS + SEAL_TOKENS)
    limits = Limits(TOKENS + SEAL_TOKENS, SEAL_TOKENS, 3, SEAL_TOKENS)
    executor = NativeExecutor.open(built.folder, built.spec, limits, pool_bytes=size.pool_bytes, threads=threads, isa=isa)
    try:
        fed = fed_sequences(executor, executor.pool, built.spec, FORMS, TOKENS + SEAL_TOKENS, Pool(size))
        for seed, preset in enumerate(PRESETS):
            fed[preset].feed_all(random_ids(built.spec, TOKENS, seed))
        yield fed
    finally:
        executor.close()


def step_of(rows: list[tuple[FedSequence, list[int], int]]) -> StepInput:
    """(sequence, new tokens, read_pages) each, in pages that are there: nothing is committed, so it can be run again."""
    return StepInput(
        token_ids=np.array([token for _, tokens, _ in rows for token in tokens], np.int32),
        query_start=np.cumsum([0, *(len(tokens) for _, tokens, _ in rows)]).astype(np.int32),
        kv_len=np.array([sequence.length + len(tokens) for sequence, tokens, _ in rows], np.int32),
        page_table=np.stack([sequence.tokens.pages.words() for sequence, _, _ in rows], axis=1),
        page_moves=np.empty((0, 4), np.int32),
        logit_rows=(np.cumsum([len(tokens) for _, tokens, _ in rows]) - 1).astype(np.int32),
        read_pages=np.array([read for _, _, read in rows], np.int32),
    )


def run(*rows: tuple[FedSequence, list[int], int]) -> list[Row]:
    output = rows[0][0].executor.run(step_of(list(rows)))
    return [(logits.copy(), float(omitted)) for logits, omitted in zip(output.logits, output.omitted, strict=True)]


def test_the_pages_of_this_test_are_sealed_as_it_says(build: BuildOf) -> None:
    with sequences(build(ONE_LAYER, "int4")) as fed:
        formats = fed["balanced"].tokens.pages.words()[0, :, 0] >> FORMAT_SHIFT
    assert np.flatnonzero(formats == PAGE_FORMATS["int4"]).tolist() == list(range(1, 1 + SEALED))


@pytest.mark.parametrize("model", MODELS)
def test_rows_give_the_same_bits_in_every_way_of_running_them(build: BuildOf, model: str) -> None:
    built = build(MODELS[model], "int4")
    reads = (0, 1, 3, 7, -1, -4)
    with sequences(built, isa="plain", threads=1) as fed:
        expected = {(preset, read): run((fed[preset], [7], read))[0] for preset in ("safe", "balanced") for read in reads}
    ways = [(isa, 1) for isa in load_core().instruction_sets()[1:]] + [("auto", 2), ("auto", 3)]
    for isa, threads in ways:
        with sequences(built, isa, threads) as fed:
            for (preset, read), (logits, omitted) in expected.items():
                for beside in ([], [3], list(range(4, 12))):  # alone, with another row, with so many that rows are turned first
                    others = [(fed["exact"], beside, 0)] if beside else []
                    others += [(fed["safe"], [9], 2)] if beside and preset == "balanced" else []
                    got, told = run(*others, (fed[preset], [7], read))[-1]
                    assert np.array_equal(got, logits) and told == omitted, (isa, threads, preset, read, beside)
    assert all((omitted > 0) == (read < 0) for (_, read), (_, omitted) in expected.items())


@pytest.mark.parametrize("model", MODELS)
def test_a_budget_that_covers_everything_and_a_probe_give_the_bits_of_reading_all(build: BuildOf, model: str) -> None:
    with sequences(build(MODELS[model], "int4")) as fed:
        for preset in ("safe", "balanced"):
            everything, _ = run((fed[preset], [7], 0))[0]
            for read in (SEALED, SEALED + 1, -1, -SEALED + 1, -SEALED):
                logits, omitted = run((fed[preset], [7], read))[0]
                assert np.array_equal(logits, everything), read
                assert (omitted > 0) == (-SEALED < read < 0), read
            few, _ = run((fed[preset], [7], 2))[0]
            assert not np.array_equal(few, everything)
            more = [run((fed[preset], [7], -read))[0][1] for read in range(1, SEALED)]
            assert sorted(more, reverse=True)[0] == more[0] and more[-1] < 0.5 * more[0]
        exact, omitted = run((fed["exact"], [7], -1))[0]  # fp16 pages are always read
        assert np.array_equal(exact, run((fed["exact"], [7], 1))[0][0]) and omitted == 0.0


def test_a_page_that_is_not_read_is_not_touched(build: BuildOf) -> None:
    built = build(replace(ONE_LAYER, heads=1, kv_heads=1), "int4")
    with sequences(built) as fed:
        sequence, words = fed["balanced"], fed["balanced"].tokens.pages.words()
        assert isinstance(sequence.executor, NativeExecutor)
        pool = sequence.executor.pool
        for read in (1, 4, SEALED):
            expected, changes = run((sequence, [7], read))[0][0], 0
            for page in range(1, 1 + SEALED):
                changed = False
                for side in (0, 1):
                    start = word_offset(int(words[0, page, side]))
                    numbers = pool[start : start + PAGE_TOKENS * 64 // 2]  # scales and minima stand behind them
                    numbers ^= 0xFF
                    changed |= not np.array_equal(run((sequence, [7], read))[0][0], expected)
                    numbers ^= 0xFF
                changes += changed
            assert changes == read


def test_what_a_probe_tells_is_what_numpy_says(build: BuildOf) -> None:
    built = build(replace(ONE_LAYER, heads=10, kv_heads=2), "fp16")  # 5 heads choose together
    token = 7
    with sequences(built) as fed:
        sequence = fed["balanced"]
        told = {read: run((sequence, [token], -read))[0][1] for read in (1, 2, 5, 8, 10)}  # writes its K too
        assert isinstance(sequence.executor, NativeExecutor)
        keys, minima, ranges = read_keys(built, sequence.executor.pool, sequence.tokens.pages.words()[0, :, 0])
    q = query_of(built, token) * np.float32(built.spec.attention_scale)
    for read, omitted in told.items():
        expected = np.mean([left_out(q[5 * kv : 5 * kv + 5], keys[kv], minima[kv], ranges[kv], read) for kv in range(2)])
        assert omitted == pytest.approx(expected, abs=1e-3), read
        assert omitted > 0.01


def read_keys(built: Built, pool: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """K [kv heads, TOKENS + 1, D], and of each page the least and the extent of every channel [kv heads, pages, D]; NaN for
    fp16 pages."""
    dim, kv_heads = built.spec.head_dim, built.spec.num_kv_heads
    pages = -(-(TOKENS + 1) // PAGE_TOKENS)
    keys = np.empty((kv_heads, pages * PAGE_TOKENS, dim))
    minima, ranges = np.full((2, kv_heads, pages, dim), np.nan)
    for page, kv in np.ndindex(pages, kv_heads):
        is_open = int(words[page]) >> FORMAT_SHIFT == PAGE_FORMATS["fp16"]
        size = dim * PAGE_TOKENS * 2 if is_open else 20 * dim  # as the contract lays a part out
        part = pool[word_offset(int(words[page])) + kv * size :][:size]
        tokens = slice(page * PAGE_TOKENS, (page + 1) * PAGE_TOKENS)
        if is_open:
            keys[kv, tokens] = part.view(np.float16).reshape(dim, PAGE_TOKENS).T
            continue
        numbers = part[: 16 * dim].view(np.uint32).reshape(dim // 8, PAGE_TOKENS)
        shifts = [4 * (value // 2) + 16 * (value % 2) for value in range(8)]
        codes = np.stack([numbers >> shift & 15 for shift in shifts], axis=1).reshape(dim, PAGE_TOKENS)
        scale, minimum = part[16 * dim :].view(np.float16).astype(float).reshape(2, dim)
        keys[kv, tokens] = (minimum[:, None] + scale[:, None] * codes).T
        minima[kv, page], ranges[kv, page] = minimum, 15 * scale
    return keys[:, : TOKENS + 1], minima, ranges


def query_of(built: Built, token: int) -> np.ndarray:
    """Float32 [heads, D] of the only layer, at position TOKENS."""
    model, spec = read_portable(built.onnx), built.spec
    weights = {
        name: np.asarray(model.weight(name), np.float32)
        for name in ("embed.weight", "layers.0.attn_norm.weight", "layers.0.attn.q_proj.weight")
    }
    hidden = _rms_norm(weights["embed.weight"][token], weights["layers.0.attn_norm.weight"], spec.norm_epsilon)
    rows = np.zeros((TOKENS + 1, spec.num_heads, spec.head_dim), np.float32)
    rows[-1] = (weights["layers.0.attn.q_proj.weight"] @ hidden).reshape(spec.num_heads, spec.head_dim)
    return _rotate(rows, spec.ropes[0])[-1]


def left_out(q: np.ndarray, keys: np.ndarray, minima: np.ndarray, ranges: np.ndarray, read: int) -> float:
    """The mean over the heads of a kv head of what the best `read` pages lack."""
    sealed = np.flatnonzero(~np.isnan(minima[:, 0]))
    shares = np.exp(q @ keys.T - (q @ keys.T).max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    # Half of the way from the middle of a page's range to the most that it could give.
    scores = q @ (minima + ranges / 2)[sealed].T + np.abs(q) @ ranges[sealed].T / 4
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    best = sealed[np.argsort(-weights.sum(axis=0), kind="stable")[:read]]
    lost = np.setdiff1d(sealed, best)
    tokens = np.concatenate([np.arange(page * PAGE_TOKENS, (page + 1) * PAGE_TOKENS) for page in lost])
    return float(shares[:, tokens].sum(axis=1).mean())


@pytest.mark.parametrize(
    ("tokens", "read", "reason"),
    [
        ([7], 1000, "read_pages of a sequence is outside"),
        ([7], -1000, "read_pages of a sequence is outside"),
        ([7], -(2**31), "read_pages of a sequence is outside"),
        ([7, 8], 4, "more than one token"),
    ],
)
def test_read_pages_that_make_no_sense_are_refused(build: BuildOf, tokens: list[int], read: int, reason: str) -> None:
    with sequences(build(ONE_LAYER, "int4")) as fed, pytest.raises(ExecutorError, match=reason):
        run((fed["balanced"], tokens, read))
