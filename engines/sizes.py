"""What a build and a CPU engine will take, before there is one. Owns: the memory of a build of any kind, the sizes of a CPU
engine from a source and a tier. Needs: source, tiers, the native core's arithmetic. Never: writes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from calibration.tiers import Tier
from edge.build_memory import builder_bytes
from edge.config import InferenceConfig
from edge.contract import SEAL_TOKENS, WEIGHT_ALIGN
from edge.devices import EngineKind, load_device
from edge.errors import BudgetError, BuildError
from edge.executors.cpu_plan import CpuPlan, PlanStep, PlanTensor
from edge.executors.native import available_threads
from edge.executors.native_core import load_core
from edge.footprint import engine_sizes, load_context
from edge.kv_budget import KvChoice, check_kv_budget, longest_in_budget
from edge.manifest import Limits
from edge.monitors.memory import machine_memory
from edge.planner import MemoryPlan, MemorySizes, plan_memory
from edge.preset_plan import PresetPlan, preset_plans
from edge.presets import presets_for
from edge.spec import ModelSpec
from edge.units import human_bytes
from engines.contexts import wanted_context
from engines.portable.convert import Converter
from engines.portable.storage import StoredTensor, stored_form
from engines.sources.base import Source

_KERNEL_BYTES = 20_000_000  # of a plan of TensorRT-RTX 1.7, beside the weights: 16 to 32 MB for the models that were tried
BUILD_BYTES = 300 << 20  # interpreter with onnx and ONNX Runtime, and the blocks in which tensors stream


def model_plan(
    source: Source,
    tier: Tier,
    target: str,
    kv: KvChoice,
    *,
    context: int | None,
    sequences: int,
    threads: int | None,
    requantise: bool = False,
) -> tuple[MemoryPlan, tuple[PresetPlan, ...]]:
    """The memory table that the package of `source` would have, and its KV memory by preset. Reads one row of every tensor."""
    spec, config = source.spec, InferenceConfig.load()
    longest = longest_in_budget(spec, kv, sequences, spec.context_length, config)
    asked = load_context(context, kv, longest)
    wanted = wanted_context(spec, asked if isinstance(asked, int) else None, config.context)
    offered = presets_for(spec.head_dim)
    check_kv_budget(
        spec, kv, offered, what="this load", context=wanted, sequences=sequences, limit=spec.context_length, config=config
    )
    limits = Limits(wanted, max(config.max_step_tokens, sequences), sequences, sequences)
    host = load_device(target).host
    engine = planned_engine(source, tier, requantise)

    def sizes_of(choice: KvChoice) -> MemorySizes:
        return engine_sizes(
            engine,
            spec,
            limits,
            config,
            choice,
            threads=threads or available_threads(),
            host_bytes=host.base_bytes + host.text_bytes,
        )

    memory = plan_memory(sizes_of(kv), context=wanted, longest_context=longest, available=machine_memory().available)
    presets = preset_plans(
        spec,
        sizes_of,
        memory,
        offered,
        budget_bytes=kv.budget_bytes,
        policy=kv.policy,
        sequences=sequences,
        longest_context=spec.context_length,
        config=config,
    )
    return memory, presets


def build_bytes(engine: CpuPlan, spec: ModelSpec, kind: EngineKind, context: int | None) -> int:
    """The most that a build should hold of a model whose planned_engine is `engine`: the proof runs two models in ONNX Runtime
    beside the engine, or beside the graph of an engine that is for other hardware, whose caches have `context` rows (None: at
    most the model's). Before that TensorRT-RTX makes its plan, in a process of its own."""
    # What ONNX Runtime holds of a model: its weights, packed once more for its kernels, and the head as float32.
    session = 2 * engine.weight_bytes + 4 * spec.vocab_size * spec.hidden_size
    logits = 4 * SEAL_TOKENS * spec.vocab_size
    shared = BUILD_BYTES + engine.weight_bytes + 2 * session + 4 * logits
    if kind == "cpu":
        return shared
    # ONNX Runtime has no float16 kernels here: caches and matrices of the layers that are not int4 are in float32 there.
    wide = sum(t.outputs * t.inputs for t in engine.tensors if t.kind in ("int8", "fp16") and t.name.startswith("layers."))
    rows = min(context or spec.context_length, spec.context_length)
    caches = 4 * 2 * len(spec.layers) * spec.num_kv_heads * spec.head_dim * rows
    proof = shared + 4 * wide + caches
    return proof if kind == "tensorrt" else max(proof, BUILD_BYTES + builder_bytes(kind, engine.weight_bytes))


def check_build_room(out: Path, engine: int, kind: EngineKind) -> None:
    """BuildError where the disk of `out` cannot hold what a build writes at its fullest: exports, weights, engine. `engine`:
    weight bytes of its planned_engine."""
    # cpu: the export of the tier, and the engine. GPUs: exports in float32 and float16, and the lowered weights beside them;
    # TensorRT-RTX adds its plan. The source's own export, which a tier that rounds needs, comes when some of these are gone.
    needed = {"cpu": 2 * engine, "tensorrt": 3 * engine, "tensorrt-rtx": 4 * engine + _KERNEL_BYTES}[kind]
    free = shutil.disk_usage(os.path.abspath(out.parent)).free
    if free < needed:
        raise BuildError(
            f"{out}: building it takes up to {human_bytes(needed)} of disk, {human_bytes(free)} are free there. "
            "Free some space, or choose another place with -o"
        )


def check_build_budget(needed: int, name: str) -> None:
    """BudgetError where a build that holds `needed` bytes would not fit."""
    available = machine_memory().available
    if needed > available:
        raise BudgetError(
            f"{name}: building it takes about {human_bytes(needed)}, {human_bytes(available)} are available. "
            "Build on a larger machine and copy the package, or try it all the same: --ignore-budget"
        )


def planned_engine(source: Source, tier: Tier, requantise: bool) -> CpuPlan:
    """The tensors of the weight file as the packager would place them, and of the steps what the workspace depends on."""
    core = load_core()
    converter = Converter(source, tier, requantise, "float32")
    tensors: list[PlanTensor] = []
    offset = 0

    def place(name: str, kind: str, shape: tuple[int, ...], group: int, minima: bool) -> None:
        nonlocal offset
        outputs, inputs = (*shape, 1)[:2]
        record = PlanTensor(name, kind, outputs, inputs, group, minima, offset, 0).record()
        tensors.append(PlanTensor(name, kind, outputs, inputs, group, minima, offset, core.tensor_bytes(record)))
        offset = -(-(offset + tensors[-1].bytes) // WEIGHT_ALIGN) * WEIGHT_ALIGN

    spec = source.spec
    ropes = {layer.rope: f"inv_freq.{layer.rope}" for layer in spec.layers}
    for name in ropes.values():
        place(name, "fp32", (spec.head_dim // 2,), 0, False)
    for index in range(len(spec.layers) if spec.qkv_bias else 0):
        place(f"layers.{index}.bias", "fp32", ((spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim,), 0, False)
    for form in planned_forms(source, converter):
        if not form.name.endswith(".bias"):  # q, k and v have theirs in one
            place(form.name, form.kind, form.shape, form.group, form.has_minima)
    steps = tuple(PlanStep("attend", {"inv_freq": ropes[layer.rope]}, {}) for layer in spec.layers)
    return CpuPlan(tuple(tensors), steps)


def planned_forms(source: Source, converter: Converter) -> Iterator[StoredTensor]:
    """How each tensor will be stored, but for the quant that is stored as 0: that takes more than a row, and no bytes."""
    for name in source.tensor_names():
        yield stored_form(name, source.shape(name), converter.rows(name, 0, 1).values, largest_quant=0)
