"""A plan as tables for people and as a row for programs. Owns: words and columns. Needs: plans. Never: planning.

What is not exact is called an estimate wherever it stands, and how it was arrived at is said below the tables.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from edge.build_memory import BASIS, LARGEST_MEASURED, BuildStep
from edge.cli.tables import format_table
from edge.jetpacks import JetPackStep
from edge.kv_budget import KvChoice
from edge.planner import MemoryPlan
from edge.policies import BY_ATTENTION
from edge.preset_plan import PresetPlan
from edge.presets import PRESETS
from edge.roofline import DECODE_SHARE, SMALL_WEIGHTS
from edge.target_plan import TargetPlan
from edge.units import human_bytes

_RIGHT = frozenset({1})
FORMULA = (
    f"decode = {DECODE_SHARE[0]:g} to {DECODE_SHARE[1]:g} x bandwidth / bytes of weights and KV that a token reads; "
    "prefill <= operations at the dense fp16 rate, and those bytes once a step"
)


@dataclass(frozen=True, slots=True)
class CpuLoadPlan:
    """What a load of a CPU engine needs."""

    memory: MemoryPlan
    kv: KvChoice
    presets: tuple[PresetPlan, ...]


def plan_row(plan: CpuLoadPlan | TargetPlan) -> dict[str, Any]:
    """What `--json` prints: the memory plan on top, the same keys for every target."""
    memory = plan.memory
    row = asdict(memory) | {"total": memory.total, "fits": memory.fits}
    if isinstance(plan, CpuLoadPlan):
        presets = [asdict(preset) for preset in plan.presets]
        return row | {
            "engine": "cpu",
            "preset": plan.kv.preset,
            "kv_policy": plan.kv.policy,
            "kv_budget": plan.kv.budget_bytes,
            "presets": presets,
        }
    rest = {key: value for key, value in asdict(plan).items() if key not in ("memory", "kind", "build")}
    build = None if plan.build is None else asdict(plan.build) | {"total": plan.build.total, "fits": plan.build.fits}
    estimates = dict(plan.estimates) | {"speeds": FORMULA}
    if plan.host_apart:
        estimates["host_apart"] = "as the row host of a board"
    if plan.build is not None:
        estimates["build.builder"] = BASIS
    return (
        row | rest | {"engine": plan.kind, "preset": "exact", "build": build, "estimates": estimates, "speed_formula": FORMULA}
    )


def plan_text(plan: CpuLoadPlan | TargetPlan, model: str, tier: str, target: str, sequences: int) -> str:
    """Tables under one line that says what was asked."""
    title = f"{model}, {tier}, {target}"
    if isinstance(plan, CpuLoadPlan):
        budget = "" if plan.kv.budget_bytes is None else f", KV budget {human_bytes(plan.kv.budget_bytes)}"
        policy = "" if plan.kv.policy == "uniform" else f", policy {plan.kv.policy}"
        load = f"{title}, context {plan.memory.context}, sequences {sequences}, preset {plan.kv.preset}{policy}{budget}"
        lines = f"{load}\n{memory_text(plan.memory, {})}"
        if plan.kv.policy in BY_ATTENTION and PRESETS[plan.kv.preset].seals:
            lines += f"\npool: with room for a prompt's pages one step above {plan.kv.preset}, and for what they become then"
        absent = "when baked with it" if plan.kv.prefix_tokens else "not in this package"
        return f"{lines}\n\nKV precision\n{_presets_table(plan.presets, absent)}" if plan.presets else lines
    parts = [
        f"{title} ({plan.title}), {plan.kind} engine, context {plan.memory.context}\n",
        _memory_heading(plan),
        memory_text(plan.memory, plan.estimates),
    ]
    if plan.host_apart:
        parts.append(f"host memory beside it: {human_bytes(plan.host_apart)} (estimate)")
    if plan.build is not None:
        parts += ["", *_build_lines(plan.build), *_jetpack_lines(plan.jetpacks)]
    parts += [
        "",
        "KV precision",
        _presets_table(plan.presets, "planned: the paged engine"),
        "",
        *_speed_lines(plan),
        "",
        *_notes(plan, target),
    ]
    return "\n".join(parts)


def memory_text(plan: MemoryPlan, estimates: dict[str, str]) -> str:
    """The rows of a plan, what is available, and what would fit."""
    rows = [[name, human_bytes(size), "estimate" if name in estimates else ""] for name, size in plan.rows]
    rows += [["total", human_bytes(plan.total), ""], ["available", human_bytes(plan.available), ""]]
    largest = "no context fits" if plan.largest_context is None else f"largest context that fits: {plan.largest_context}"
    return f"{format_table(rows, right=_RIGHT)}\n{'fits' if plan.fits else 'DOES NOT FIT'}; {largest}"


def _memory_heading(plan: TargetPlan) -> str:
    return "memory of the board, for CPU and GPU" if plan.unified else "memory of the card"


def _build_lines(build: BuildStep) -> list[str]:
    where = "on the device, with --finish" if build.on_device else "on any x86-64 machine, without a GPU"
    rows = [["builder", human_bytes(build.builder), "estimate"]]
    if build.workspace:
        rows.append(["workspace", human_bytes(build.workspace), "at most"])
    rows.append(["total", human_bytes(build.total), ""])
    if build.limit is not None:
        rows.append(["limit", human_bytes(build.limit), "TACTIC_DRAM: kernels that need more are left out"])
    if build.available is not None:
        rows.append(["available", human_bytes(build.available), "" if build.on_device else "on this machine"])
    fits = {True: "fits", False: "DOES NOT FIT", None: "the memory of that machine is not known"}[build.fits]
    return [f"last step of the build, {where}", format_table(rows, right=_RIGHT), fits]


def _jetpack_lines(steps: tuple[JetPackStep, ...]) -> list[str]:
    """One line for each TensorRT that some JetPack brings."""
    waits = "waits for the plugin edge::PagedAttention, which this version does not have"
    return [
        f"JetPack {', '.join(step.jetpacks)}: TensorRT {step.tensorrt}, --finish {'works' if step.finishes else waits}"
        for step in steps
    ]


def _presets_table(presets: tuple[PresetPlan, ...], absent: str) -> str:
    """`absent`: what is said of a preset that the engine does not offer."""
    rows = [["preset", "KV", "bits", "pool", "largest context", "runs with"]]
    rows += [_preset_row(preset, absent) for preset in presets]
    return format_table(rows, right=frozenset({2, 3, 4}))


def _preset_row(plan: PresetPlan, absent: str) -> list[str]:
    largest = "none" if plan.largest_context is None else str(plan.largest_context)
    state = "this version" if plan.ready else absent
    return [plan.preset, plan.layout, f"{plan.bits:g}", human_bytes(plan.pool), largest, state]


def _speed_lines(plan: TargetPlan) -> list[str]:
    rows = [["mode", "W", "GPU MHz", "GB/s", "prefill", "decode", ""]]
    for speed in plan.speeds:
        watts = "-" if speed.watts is None else str(speed.watts)
        decode = f"{_rough(speed.decode[0])} to {_rough(speed.decode[1])}"
        clock, bandwidth = f"{speed.gpu_mhz:g}", f"{speed.bandwidth_gbs:g}"
        rows.append(
            [
                speed.mode,
                watts,
                clock,
                bandwidth,
                f"at most {_rough(speed.prefill)}",
                decode,
                "Super" if speed.needs_super else "",
            ]
        )
    heading = f"speed, tokens/s at {plan.memory.context} tokens of context: estimate, nothing was run"
    return [heading, format_table(rows, right=frozenset({1, 2, 3, 4, 5}))]


def _rough(value: int) -> str:
    """Two digits: an estimate has no more."""
    digits = 10 ** max(0, len(str(value)) - 2)
    return f"{value // digits * digits:,}"


def _notes(plan: TargetPlan, target: str) -> list[str]:
    notes = [
        f"available: {plan.available_source}",
        "paged KV: bytes of the pages; the slabs that a pool is cut into take a few percent more",
        f"speed: {FORMULA}",
    ]
    if plan.memory.weights < SMALL_WEIGHTS:
        notes.append(
            "speed: with weights below 1 GB the launches of kernels, which nothing here counts, can take most of the time"
        )
    if plan.build is not None and plan.memory.weights > LARGEST_MEASURED:
        notes.append(f"builder: measured with up to {human_bytes(LARGEST_MEASURED)} of weights; beyond, that line is drawn on")
    if any(speed.needs_super for speed in plan.speeds):
        notes.append("Super: a board that was flashed with its Super configuration (JetPack 6.2 and newer)")
    return [*notes, f"estimates: how each was arrived at stands in yaml/devices/{target}.yaml, and in --json"]
