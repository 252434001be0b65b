"""The plan of an engine for a GPU: memory, its last build step, presets, speed. Owns: TargetPlan and its parts. Needs:
profiles, planner, presets, roofline. Never: a device; what is not exact is named an estimate.

Memory that CPU and GPU share is one pot: what the process holds counts too, and what the running system keeps. A card has a
pot of its own, and the process lives in its host's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edge.build_memory import BuildStep, build_step, limits_at_hand
from edge.devices import DeviceProfile, EngineKind, Gpu
from edge.jetpacks import JetPackStep, jetpack_steps
from edge.pages.fit import peak_extents
from edge.pages.geometry import bytes_of, page_groups, sealed_bits
from edge.pages.linear import SEQUENCES, linear_bytes
from edge.planner import MemoryPlan, MemorySizes, largest_context, plan_memory
from edge.preset_plan import PresetPlan
from edge.presets import PRESETS, Preset, PresetName, presets_for
from edge.roofline import Speed, Work, estimate_speeds, prefill_operations
from edge.spec import ModelSpec

if TYPE_CHECKING:
    from edge.machine import DeviceNow

_HALF = 2  # bytes of a float16


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes of an engine's weights."""

    stored: int  # in the engine
    read: int  # by one decoded token: every matrix once, and one row of a table that only embeds


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """What an engine for a GPU needs, before there is one."""

    title: str  # of the device
    kind: EngineKind
    memory: MemoryPlan
    unified: bool
    available_source: str  # where memory.available comes from
    host_apart: int  # bytes of the process in the host's memory; 0 where memory is unified, since the plan counts them
    estimates: dict[str, str]  # row of the memory plan that is no exact number: how it was arrived at
    build: BuildStep | None  # None: the plan stands already
    jetpacks: tuple[JetPackStep, ...]  # who does that step, on a board; (): not a board, or the plan stands already
    presets: tuple[PresetPlan, ...]
    speeds: tuple[Speed, ...]  # estimates, at the full planned context


def plan_target(
    profile: DeviceProfile,
    kind: EngineKind,
    spec: ModelSpec,
    weights: Weights,
    *,
    context: int,
    longest_context: int,
    here: int,
    now: DeviceNow | None,
    is_built: bool = False,
) -> TargetPlan:
    """The plan of an engine of `kind`, with `context` positions in its KV caches. `here` is the memory that this machine has
    available; `now` is None where the device is another machine."""
    gpu, defaults = profile.gpu, profile.defaults
    assert gpu is not None and defaults is not None, f"{profile.title}: no GPU"
    step = min(defaults.prefill_tokens, context)
    host = profile.host.base_bytes + profile.host.text_bytes
    sizes = MemorySizes(
        weights=weights.stored,
        pool=lambda tokens: linear_bytes(spec, tokens, SEQUENCES),
        workspace=lambda tokens: workspace_bytes(spec, tokens, min(defaults.prefill_tokens, tokens)),
        host=host if gpu.unified else 0,
        runtime=gpu.runtime_bytes,
        # MemAvailable is without what the system keeps; the memory of a card is told in use or not.
        system=0 if now is not None and gpu.unified else gpu.system_bytes,
    )
    available = gpu.memory_bytes - gpu.reserved_bytes if now is None else now.memory
    memory = plan_memory(sizes, context=context, longest_context=longest_context, available=available)
    there = now.host if now is not None else gpu.usable_bytes if gpu.unified else None
    limits = gpu.build if now is None else limits_at_hand(profile, now.memory)
    work = Work(weights.read, memory.pool, prefill_operations(spec, context))
    return TargetPlan(
        title=profile.title,
        kind=kind,
        memory=memory,
        unified=gpu.unified,
        available_source="the profile: all but what firmware and driver keep" if now is None else now.source,
        host_apart=0 if gpu.unified else host,
        estimates=_estimates(profile, gpu, memory),
        build=None if is_built else build_step(kind, gpu, weights.stored, here=here, there=there, limits=limits),
        jetpacks=() if is_built else jetpack_steps(profile),
        presets=_presets(spec, sizes, memory, longest_context),
        speeds=estimate_speeds(work, gpu, step),
    )


def workspace_bytes(spec: ModelSpec, context: int, step_tokens: int) -> int:
    """An estimate of an engine's activations for a step of `step_tokens`, in float16: the residual stream and its norm beside
    the widest of attention (with scores over the whole context, where no fused kernel is found) and feed-forward; one mask a
    window; logits for every row of the step."""
    wide = (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim + spec.num_heads * (spec.head_dim + context)
    width = 2 * spec.hidden_size + max(wide, 3 * spec.intermediate_size)
    masks = len(spec.group_windows) * context
    return step_tokens * (_HALF * (width + spec.vocab_size) + masks)


def _presets(spec: ModelSpec, sizes: MemorySizes, memory: MemoryPlan, longest: int) -> tuple[PresetPlan, ...]:
    linear = PresetPlan("exact", "linear", sealed_bits(spec, PRESETS["exact"]), memory.pool, memory.largest_context, ready=True)
    return linear, *(_paged(name, PRESETS[name], spec, sizes, memory, longest) for name in presets_for(spec.head_dim))


def _paged(
    name: PresetName, preset: Preset, spec: ModelSpec, sizes: MemorySizes, memory: MemoryPlan, longest: int
) -> PresetPlan:
    groups = page_groups(spec, preset)

    def pool(tokens: int) -> int:
        return bytes_of(peak_extents(groups, tokens, SEQUENCES))

    largest = largest_context(replace(sizes, pool=pool), longest, memory.available)
    return PresetPlan(name, "paged", sealed_bits(spec, preset), pool(memory.context), largest, ready=False)


def _estimates(profile: DeviceProfile, gpu: Gpu, memory: MemoryPlan) -> dict[str, str]:
    """Of the rows that the plan has."""
    found = {"workspace": "activations, masks and logits of one step, from the shapes of the model"}
    for row, path in (("host", "host"), ("runtime", "gpu.runtime_bytes"), ("system", "gpu.system_bytes")):
        source = profile.source(path)
        if profile.is_estimate(path) and source is not None and dict(memory.rows).get(row):
            found[row] = source.partition(": ")[2]
    return found
