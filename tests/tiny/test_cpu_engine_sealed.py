"""The CPU engine over pages that it seals as it goes: the same bits in every way of running it, and close to fp16 pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from synthetic import GEMMA, LLAMA, TinyModel

from edge import contract

pytest.importorskip("edge._core", reason="needs the native core: pip install .")
pytest.importorskip("onnxruntime", reason="needs the build extra")

from built_engine import Built, random_ids

from edge.comparison import Comparison
from edge.executors.base import StepInput
from edge.executors.native import NativeExecutor
from edge.executors.native_core import load_core
from edge.manifest import Limits

TOKENS = 520  # positions from 512 on read three blocks sealed, the sink apart
PAGES = -(-TOKENS // contract.PAGE_TOKENS)
HEADS_64 = replace(LLAMA, head_dim=64, hidden=128)
WINDOWED = replace(GEMMA, head_dim=32)
PRESETS = {"safe": ("int8", "int4"), "balanced": ("int4", "int4"), "tight": ("int4", "int2")}


def sealed_logits(
    built: Built, ids: Sequence[int], formats: tuple[str, str], chunk: int = 128, isa: str = "auto", threads: int = 2
) -> np.ndarray:
    """Float32 [len(ids), vocabulary]; pages are sealed to `formats` (K, V) at the borders that the contract names."""
    spec, groups = built.spec, len(built.spec.groups)
    extent = max(contract.extent_bytes(False, "fp16", len(layers), spec.num_kv_heads, spec.head_dim) for layers in spec.groups)
    shape = (groups, 1, PAGES, 2)
    words = np.arange(2 * groups * PAGES * 2, dtype=np.int32) * (extent // contract.OFFSET_UNIT)
    table, spare = words[: words.size // 2].reshape(shape).copy(), words[words.size // 2 :].reshape(shape)
    limits = Limits(TOKENS, contract.SEAL_TOKENS, 1, contract.SEAL_TOKENS)
    executor = NativeExecutor.open(built.folder, spec, limits, pool_bytes=words.size * extent, threads=threads, isa=isa)
    rows, sealed, begin = [], 1, 0  # page 0 is the sink
    try:
        while begin < len(ids):
            border = begin // contract.SEAL_TOKENS * contract.SEAL_TOKENS
            end = min(begin + chunk, border + contract.SEAL_TOKENS, len(ids))
            moves = []
            for page in range(sealed, max(sealed, (border - contract.SEAL_TOKENS) // contract.PAGE_TOKENS)):
                for group, side in np.ndindex(groups, 2):
                    target = spare[group, 0, page, side] | contract.PAGE_FORMATS[formats[side]] << contract.FORMAT_SHIFT
                    moves.append((group, side, table[group, 0, page, side], target))
                    table[group, 0, page, side] = target
                sealed = page + 1
            step = StepInput(
                token_ids=np.array(ids[begin:end], dtype=np.int32),
                query_start=np.array([0, end - begin], dtype=np.int32),
                kv_len=np.array([end], dtype=np.int32),
                page_table=table,
                page_moves=np.array(moves, dtype=np.int32).reshape(-1, 4),
                logit_rows=np.arange(end - begin, dtype=np.int32),
            )
            rows.append(executor.run(step).logits.copy())
            begin = end
    finally:
        executor.close()
    return np.concatenate(rows)


@pytest.mark.parametrize("model", [HEADS_64, WINDOWED], ids=["llama", "gemma"])
@pytest.mark.parametrize("preset", PRESETS)
def test_sealed_pages_give_the_same_bits_in_every_way_of_running(
    build: Callable[[TinyModel, str], Built], model: TinyModel, preset: str
) -> None:
    built = build(model, "int4")
    ids = random_ids(built.spec, TOKENS)
    expected = sealed_logits(built, ids, PRESETS[preset])
    for isa in load_core().instruction_sets():
        assert np.array_equal(sealed_logits(built, ids, PRESETS[preset], isa=isa, threads=1), expected), isa
    for chunk, threads in ((1, 2), (5, 1), (100, 3)):
        assert np.array_equal(sealed_logits(built, ids, PRESETS[preset], chunk, threads=threads), expected), chunk


@pytest.mark.parametrize(("preset", "most"), [("safe", 1e-3), ("balanced", 0.02), ("tight", 0.1)])
def test_sealed_pages_are_close_to_fp16_pages(build: Callable[[TinyModel, str], Built], preset: str, most: float) -> None:
    built = build(HEADS_64, "fp16")
    ids = random_ids(built.spec, TOKENS)
    exact = sealed_logits(built, ids, ("fp16", "fp16"))
    ours = sealed_logits(built, ids, PRESETS[preset])
    border = 2 * contract.SEAL_TOKENS
    assert np.array_equal(ours[:border], exact[:border])  # nothing was sealed so far
    found = Comparison()
    found.add(exact[border:-1], ours[border:-1], np.array(ids[border + 1 :]))
    assert 0.0 < found.kl_mean < most
