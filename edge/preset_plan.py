"""KV memory of each preset for a CPU engine. Owns: PresetPlan, its rows. Needs: planner, kv_budget. Never: a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edge.config import InferenceConfig
from edge.kv_budget import KvChoice, longest_in_budget
from edge.pages.geometry import sealed_bits
from edge.planner import MemoryPlan, MemorySizes, largest_context
from edge.policies import PolicyName
from edge.presets import PRESETS, PresetName, presets_for
from edge.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class PresetPlan:
    """KV memory of one preset."""

    preset: PresetName
    layout: str  # linear: one tensor a layer; paged: pages, which windows give back
    bits: float  # of an element of K or V behind the last seal borders, scales counted
    pool: int  # bytes at the planned context; for a GPU the pages alone: the slabs of a pool take a few percent more
    largest_context: int | None  # that fits with it; None: none does
    ready: bool  # the engine offers it


def preset_plans(
    spec: ModelSpec,
    sizes_of: Callable[[KvChoice], MemorySizes],
    memory: MemoryPlan,
    offered: Sequence[str],
    *,
    budget_bytes: int | None,
    policy: PolicyName = "uniform",
    sequences: int,
    longest_context: int,
    config: InferenceConfig,
    prefix_tokens: int = 0,
) -> tuple[PresetPlan, ...]:
    """A row for each preset that pages of this model's heads allow, at the context of `memory`. BudgetError where the budget
    holds not one page, which is fp16 in all of them."""
    rows = []
    for name in presets_for(spec.head_dim):
        kv = KvChoice(name, budget_bytes, prefix_tokens, policy)
        sizes = sizes_of(kv)
        longest = longest_in_budget(spec, kv, sequences, longest_context, config)
        largest = largest_context(sizes, longest, memory.available)
        if prefix_tokens and (largest is None or largest <= prefix_tokens):
            largest = None  # nothing behind the prefix
        bits = sealed_bits(spec, PRESETS[name])
        rows.append(PresetPlan(name, "paged", bits, sizes.pool(memory.context), largest, name in offered))
    return tuple(rows)
