"""Bytes and operations of a model, against counting by hand."""

from __future__ import annotations

import dataclasses

from edge.bench.work import decode_work, prefill_work, without_pages
from edge.executors.cpu_plan import CpuPlan, PlanStep, PlanTensor
from edge.presets import PRESETS
from edge.spec import LayerSpec, ModelSpec, RopeSpec

WINDOW = 8
EXACT = PRESETS["exact"]
SPEC = ModelSpec(
    name="two layers", architecture="llama", vocab_size=100, hidden_size=64, intermediate_size=96, num_heads=4, num_kv_heads=2,
    head_dim=32, layers=(LayerSpec(0, 0), LayerSpec(WINDOW, 0)), ropes=(RopeSpec(32, 1e4, ()),), context_length=512,
    norm_epsilon=1e-5, activation="silu", attention_scale=1.0, embedding_scale=1.0,
    qk_norm=False, post_norms=False, tied_head=True,
)  # fmt: skip
KV_BYTES = 2 * 2 * 2 * 32  # of a position and layer: K and V, fp16, two heads of 32
TENSORS = (
    PlanTensor("embed", "int8", 100, 64, 32, False, 0, 7000),
    PlanTensor("norm", "fp32", 64, 1, 0, False, 8192, 256),
    PlanTensor("q", "int4", 128, 64, 32, True, 12288, 5000),
    PlanTensor("out", "fp16", 64, 128, 0, False, 20480, 16384),
)


def plan() -> CpuPlan:
    steps = (
        PlanStep("embed", {"weight0": "embed"}),
        PlanStep("project", {"weight0": "q", "norm": "norm"}),
        PlanStep("attend"),
        PlanStep("add", {"weight0": "out"}),
        PlanStep("head", {"weight0": "embed", "norm": "norm"}),
    )
    return CpuPlan(TENSORS, steps)


def test_a_decoded_token_reads_every_weight_once_and_what_its_windows_hold() -> None:
    work = decode_work(plan(), SPEC, EXACT, first=100, count=1)
    assert work.weight_bytes == 7000 + 256 + 5000 + 16384
    assert work.kv_bytes == KV_BYTES * (101 + WINDOW)
    assert work.int8_operations == 2 * (128 * 64 + 100 * 64)
    assert work.fp32_operations == 2 * 64 * 128
    assert work.attention_operations == 4 * 4 * 32 * (101 + WINDOW)


def test_sealed_pages_count_as_they_are_kept() -> None:
    # At 700: pages 1 to 15 of 22 are read sealed; the window of 8 sees open pages alone.
    sealed = 2 * (32 * 20) + 2 * (32 * 16 + 32 * 4)
    open_tokens = 701 - 15 * 32
    assert decode_work(plan(), SPEC, PRESETS["balanced"], first=700, count=1).kv_bytes == 15 * sealed + KV_BYTES * (
        open_tokens + WINDOW
    )


def test_a_window_counts_the_tokens_that_it_sees_of_open_pages_and_sealed_ones_whole() -> None:
    spec = dataclasses.replace(SPEC, layers=(LayerSpec(300, 0),))
    sealed = 2 * (32 * 20) + 2 * (32 * 16 + 32 * 4)
    # At 700 the window begins at 401, in page 12: pages 12 to 15 are read sealed, 512 to 700 open.
    assert decode_work(plan(), spec, PRESETS["balanced"], first=700, count=1).kv_bytes == 4 * sealed + KV_BYTES * 189


def test_tokens_inside_a_window_see_only_what_stands_before_them() -> None:
    assert decode_work(plan(), SPEC, EXACT, first=3, count=1).kv_bytes == KV_BYTES * (4 + 4)


def test_several_decoded_tokens_count_as_their_mean() -> None:
    work = decode_work(plan(), SPEC, EXACT, first=100, count=3)
    assert work.kv_bytes == KV_BYTES * (102 + WINDOW)
    assert work.attention_operations == 4 * 4 * 32 * (102 + WINDOW)


def test_a_prompt_computes_its_head_once_and_its_layers_for_every_token() -> None:
    work = prefill_work(plan(), SPEC, EXACT, tokens=10)
    seen = sum(range(1, 11)) + sum(min(n, WINDOW) for n in range(1, 11))
    assert work.int8_operations == 10 * 2 * 128 * 64 + 2 * 100 * 64
    assert work.fp32_operations == 10 * 2 * 64 * 128
    assert work.attention_operations == 4 * 4 * 32 * seen


def test_of_a_page_that_is_left_out_the_bounds_of_its_keys_are_read() -> None:
    safe = PRESETS["safe"]
    work = decode_work(plan(), SPEC, safe, 480, 1)
    assert without_pages(work, SPEC, safe, 0.0) == work
    less = without_pages(work, SPEC, safe, 2.5)
    key, value = (32 + 4) * 2 * 32, 2 * (32 // 2 + 4) * 32  # int8 and its scales and minima by channel; int4, theirs by token
    assert work.kv_bytes - less.kv_bytes == 2.5 * (key + value - 4 * 2 * 32)
    assert work.attention_operations - less.attention_operations == 2.5 * 32 * 4 * 4 * 32
    assert (less.weight_bytes, less.int8_operations) == (work.weight_bytes, work.int8_operations)
