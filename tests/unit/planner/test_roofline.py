"""Estimates of speed: by hand, against published figures, and in the right order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edge.devices import BuildLimits, Gpu, PowerMode, device_names, load_device
from edge.roofline import Work, estimate_speeds, prefill_operations
from edge.spec import LayerSpec, ModelSpec, RopeSpec

GPU = Gpu(
    sm="8.6", memory_bytes=1, unified=False, reserved_bytes=0, system_bytes=0, runtime_bytes=0, sm_count=10, gpu_mhz=1000,
    fp16_tflops=10, int8_tops=20, bandwidth_gbs=100, build=BuildLimits(1, 1),
)  # fmt: skip
LLAMA_8B = ModelSpec(
    name="8B", architecture="llama", vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_heads=32, num_kv_heads=8,
    head_dim=128, layers=tuple(LayerSpec(0, 0) for _ in range(32)),
    ropes=(RopeSpec(128, 5e5, ()),), context_length=131072, norm_epsilon=1e-5,
    activation="silu", attention_scale=0.088, embedding_scale=1.0, qk_norm=False, post_norms=False, tied_head=False,
)  # fmt: skip


def test_decode_is_bandwidth_over_the_bytes_of_a_token() -> None:
    (speed,) = estimate_speeds(Work(weight_bytes=900_000_000, kv_bytes=100_000_000, prefill_operations=1), GPU, 128)
    assert speed.decode == (70, 85)
    assert (speed.mode, speed.watts, speed.needs_super) == ("full", None, False)


def test_prefill_is_bound_by_operations_or_by_reading_the_weights_once_a_step() -> None:
    (busy,) = estimate_speeds(Work(1_000_000, 0, prefill_operations=10**9), GPU, 128)
    assert busy.prefill == 10_000  # 10 TFLOPS over 1 GFLOP
    (waiting,) = estimate_speeds(Work(10**9, 0, prefill_operations=1), GPU, 128)
    assert waiting.prefill == 12_800  # 128 tokens in the 10 ms that 1 GB takes


def test_a_power_mode_counts_its_own_clock_units_and_memory() -> None:
    modes = (PowerMode("half", 7, 5, 1000, 50), PowerMode("all", None, 10, 1000, 100, needs_super=True))
    half, full = estimate_speeds(Work(10**9, 0, prefill_operations=10**12), replace(GPU, modes=modes), 128)
    assert (half.prefill, full.prefill) == (5, 10)
    assert (half.decode, full.decode) == ((35, 42), (70, 85))
    assert (half.watts, full.needs_super) == (7, True)


def test_operations_of_a_prompt_token_are_two_a_weight_and_those_of_attention() -> None:
    weights = 32 * (4096 * (32 + 2 * 8) * 128 + 32 * 128 * 4096 + 3 * 4096 * 14336)
    assert weights == 6_979_321_856  # of the layers of an 8B Llama
    assert prefill_operations(LLAMA_8B, 0) == 2 * weights
    assert prefill_operations(LLAMA_8B, 1000) - prefill_operations(LLAMA_8B, 0) == 32 * 4 * 32 * 128 * 1000


def test_published_decoding_of_an_8b_model_lies_within_the_estimate() -> None:
    """int4 on Jetson AGX Orin 64 GB: 32 to 36 tokens/s."""
    weights = (6_979_321_856 + 128256 * 4096) * 4.5 / 8
    gpu = load_device("orin-agx-64").gpu
    assert gpu is not None
    speed = estimate_speeds(Work(int(weights), 100 << 20, prefill_operations(LLAMA_8B, 512)), gpu, 128)[-1]
    assert speed.mode == "MAXN"
    assert speed.decode[0] <= 33
    assert speed.decode[1] >= 36


@pytest.mark.parametrize("name", [name for name in device_names() if load_device(name).gpu is not None])
def test_more_power_never_decodes_slower(name: str) -> None:
    gpu = load_device(name).gpu
    assert gpu is not None
    speeds = estimate_speeds(Work(10**9, 10**7, 10**9), gpu, 128)
    assert [speed.decode for speed in speeds] == sorted(speed.decode for speed in speeds)
    assert all(speed.prefill > 0 for speed in speeds)
