"""Tokens a second that a GPU allows, from bytes and operations. Owns: the formulas, Speed. Needs: profiles, spec. Never: a
measurement; every figure of this module is an estimate, and is to be called so wherever it is shown.

    decode   = share x bandwidth / (bytes of weights that a token reads + bytes of KV that it reads), share 0.7 to 0.85
    prefill <= step / max(step x operations a token / rate, (bytes of weights + bytes of KV) / bandwidth)

The share is what published int4 decoding on Jetson boards reaches of their memory's bandwidth; below about 1 GB of weights the
launches of kernels, which nothing here counts, take more than the rest. The rate is that of dense fp16 tensor cores, whatever
the tier: weights of 4 and 8 bits are multiplied as fp16.
"""

from __future__ import annotations

from dataclasses import dataclass

from edge.devices import Gpu, PowerMode
from edge.spec import ModelSpec

DECODE_SHARE = (0.7, 0.85)
SMALL_WEIGHTS = 10**9  # bytes; below, see above


@dataclass(frozen=True, slots=True)
class Work:
    """What one sequence costs at a full context."""

    weight_bytes: int  # read by a decoded token, and by a prefill step
    kv_bytes: int  # read by a decoded token, and by a prefill step
    prefill_operations: int  # of one prompt token: multiplications and additions


@dataclass(frozen=True, slots=True)
class Speed:
    """An estimate for one power mode."""

    mode: str
    watts: int | None  # None: no budget is set
    needs_super: bool
    gpu_mhz: float
    bandwidth_gbs: float
    prefill: int  # tokens/s, at most
    decode: tuple[int, int]  # tokens/s, from, to


def prefill_operations(spec: ModelSpec, context: int) -> int:
    """Operations of a prompt token behind `context` others: matrices of the layers, and attention over all of the context, as a
    masked kernel does it. The head counts for one token of a prompt only."""
    attention = 2 * spec.num_heads * spec.head_dim * context
    queries = (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim * spec.hidden_size
    outputs = spec.num_heads * spec.head_dim * spec.hidden_size
    feed_forward = 3 * spec.hidden_size * spec.intermediate_size
    return 2 * len(spec.layers) * (queries + outputs + feed_forward + attention)


def estimate_speeds(work: Work, gpu: Gpu, step_tokens: int) -> tuple[Speed, ...]:
    """One estimate for each power mode; one in all for a GPU that has none."""
    full = PowerMode("full", None, gpu.sm_count, gpu.gpu_mhz, gpu.bandwidth_gbs)
    return tuple(_speed(work, gpu, mode, step_tokens) for mode in gpu.modes or (full,))


def _speed(work: Work, gpu: Gpu, mode: PowerMode, step_tokens: int) -> Speed:
    bandwidth = mode.bandwidth_gbs * 1e9
    rate = gpu.fp16_tflops * 1e12 * (mode.sm_count * mode.gpu_mhz) / (gpu.sm_count * gpu.gpu_mhz)
    read_seconds = (work.weight_bytes + work.kv_bytes) / bandwidth
    step_seconds = max(step_tokens * work.prefill_operations / rate, read_seconds)
    return Speed(
        mode=mode.name,
        watts=mode.watts,
        needs_super=mode.needs_super,
        gpu_mhz=mode.gpu_mhz,
        bandwidth_gbs=mode.bandwidth_gbs,
        prefill=int(step_tokens / step_seconds),
        decode=(int(DECODE_SHARE[0] / read_seconds), int(DECODE_SHARE[1] / read_seconds)),
    )
