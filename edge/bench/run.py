"""A measurement from an open runtime to its figures. Owns: the order: the model first, then the machine with the memory freed.
Needs: runtime, the native core. Never: opens a package."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edge.bench.figures import engine_figures
from edge.bench.measure import measure
from edge.bench.rates import measure_rates
from edge.bench.work import decode_work, prefill_work, without_pages
from edge.config import InferenceConfig
from edge.presets import PRESETS

if TYPE_CHECKING:
    from edge.planner import MemoryPlan
    from edge.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Load:
    """What is measured."""

    prompt: int  # tokens
    decode: int  # tokens behind the first one of the answer
    rounds: int


def bench_config() -> InferenceConfig:
    """That of every runtime which is measured: each round computes its whole prompt."""
    return replace(InferenceConfig.load(), prefix_cache=False)


def bench_runtime(runtime: Runtime, plan: MemoryPlan, load: Load, threads: int) -> dict[str, Any]:
    """Measures `load`, closes `runtime`, measures the machine; figures as `edge bench --json` prints them."""
    from edge.executors.native import NativeExecutor

    executor, spec = runtime.executor, runtime.spec
    assert not runtime.prefix_cache.is_on, "only the first round would compute its prompt"
    assert isinstance(executor, NativeExecutor), "bench opens CPU packages only"
    steps, isa = executor.plan, executor.isa
    with runtime:
        measured = measure(runtime, load.prompt, load.decode, load.rounds)
        skipped = runtime.stats.pages_skipped / (load.rounds * load.decode)
    preset = PRESETS[runtime.preset]
    decode = without_pages(decode_work(steps, spec, preset, load.prompt, load.decode), spec, preset, skipped)
    rates = measure_rates(isa, threads, round(decode.bytes))
    return engine_figures(measured, plan.total, decode, prefill_work(steps, spec, preset, load.prompt), rates)
