"""`edge bench shape`: the speed of a model of given sizes and random weights; nothing is downloaded."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge.cli.bench import ask_for, bench_context, show
from edge.cli.options import budget_option, isa_option, json_option, kv_preset_option, rounds_option, threads_option
from edge.cli.progress import terminal_progress
from edge.cli.tables import format_table
from edge.errors import ConfigError, RequestError
from edge.units import human_bytes

if TYPE_CHECKING:
    from edge.executors.cpu_plan import CpuPlan
    from edge.kv_budget import KvChoice
    from edge.manifest import Limits
    from edge.planner import MemoryPlan
    from edge.presets import PresetName
    from edge.runtime import Runtime
    from edge.spec import ModelSpec


@click.command(name="shape")
@click.argument("name", required=False)
@click.option("--prompt", type=click.IntRange(min=1), default=512, show_default=True, help="Tokens of the prompt.")
@click.option("--decode", type=click.IntRange(min=1), default=64, show_default=True, help="Tokens to decode after it.")
@kv_preset_option()
@rounds_option(1)
@threads_option()
@isa_option()
@budget_option()
@json_option()
def command(
    name: str | None,
    prompt: int,
    decode: int,
    kv_preset: PresetName | None,
    rounds: int,
    threads: int | None,
    isa: str,
    ignore_budget: bool,
    as_json: bool,
) -> None:
    """Measure a model of the sizes NAME with random int4 weights: how fast would it be here, and how close to the limit?

    NAME is one of yaml/shapes, or a file with the same keys that ends in .yaml; without it the shapes are listed. The weights
    are drawn into a temporary folder.
    """
    if name is None:
        click.echo(_listing(as_json))
        return
    from edge.bench.run import Load, bench_runtime
    from edge.bench.shapes import load_shape
    from edge.bench.synthetic import synthetic_plan, write_synthetic
    from edge.cli.kv_figures import kv_figures
    from edge.executors.native import available_threads

    shape, used_threads = load_shape(name), threads or available_threads()
    spec = shape.spec(Path(name).stem if name.endswith(".yaml") else name)
    engine = synthetic_plan(shape, spec)
    context = bench_context(prompt, decode, spec.context_length)
    kv = _kv_choice(spec, kv_preset)
    plan = _memory_plan(engine, spec, kv, context, used_threads, None if ignore_budget else name)
    with terminal_progress() as progress, tempfile.TemporaryDirectory(prefix="edge-shape-") as scratch:
        _check_disk(Path(scratch), engine.weight_bytes)
        write_synthetic(engine, Path(scratch), progress)
        start = time.perf_counter()
        runtime = _open(Path(scratch), spec, kv, context, used_threads, isa)
        load = time.perf_counter() - start
        figures = bench_runtime(runtime, plan, Load(prompt, decode, rounds), used_threads) | kv_figures(runtime, kv)
    show({"shape": spec.name, "tier": "int4", "load_s": load}, figures, as_json)


def _listing(as_json: bool) -> str:
    from edge.bench.shapes import load_shape, shape_names
    from edge.bench.synthetic import synthetic_plan

    shapes = {name: load_shape(name) for name in shape_names()}
    sizes = {name: synthetic_plan(shape, shape.spec(name)).weight_bytes for name, shape in shapes.items()}
    if as_json:
        rows = [{"name": name, "title": shape.title, "weight_bytes": sizes[name], "context_length": shape.context_length,
                 "source": shape.source} for name, shape in shapes.items()]  # fmt: skip
        return json.dumps(rows)
    head = ["shape", "model", "int4 weights", "context"]
    cells = [[name, shape.title, human_bytes(sizes[name]), str(shape.context_length)] for name, shape in shapes.items()]
    return format_table([head, *cells], right=frozenset({2, 3}))


def _memory_plan(engine: CpuPlan, spec: ModelSpec, kv: KvChoice, context: int, threads: int, checked: str | None) -> MemoryPlan:
    """What a run takes; BudgetError where that is not there and the plan is `checked`, by this name."""
    from edge.config import InferenceConfig
    from edge.devices import load_device
    from edge.footprint import engine_sizes
    from edge.load import resolve_limits
    from edge.monitors.memory import machine_memory
    from edge.planner import check_budget, plan_memory

    config = InferenceConfig.load()
    limits = resolve_limits(_engine_limits(spec), context, 1, config)
    host = load_device("cpu").host.base_bytes
    sizes = engine_sizes(engine, spec, limits, config, kv, threads=threads, host_bytes=host)
    available = machine_memory().available
    plan = plan_memory(sizes, context=context, longest_context=spec.context_length, available=available)
    if checked is not None:
        check_budget(plan, checked, ask_for)
    return plan


def _check_disk(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ConfigError(
            f"{folder.parent}: {human_bytes(free)} free, the weights take {human_bytes(needed)} there. "
            "Free some, or set TMPDIR to a folder on another disk"
        )


def _engine_limits(spec: ModelSpec) -> Limits:
    """Those of a built engine."""
    from edge import contract
    from edge.manifest import Limits

    return Limits(spec.context_length, max_step_tokens=2048, max_sequences=1, max_logit_rows=contract.SEAL_TOKENS)


def _kv_choice(spec: ModelSpec, asked: PresetName | None) -> KvChoice:
    """The preset asked for, else the default. RequestError where heads of this width do not allow it."""
    from edge.config import InferenceConfig
    from edge.kv_budget import KvChoice
    from edge.presets import default_preset, presets_for

    offered = presets_for(spec.head_dim)
    if asked is not None and asked not in offered:
        fact = f"--kv-preset {asked}: heads of {spec.head_dim} channels allow {', '.join(offered)}"
        raise RequestError(f"{fact}. Use one of these")
    return KvChoice(asked or default_preset(InferenceConfig.load().kv_preset, offered))


def _open(folder: Path, spec: ModelSpec, kv: KvChoice, context: int, threads: int, isa: str) -> Runtime:
    from edge.bench.run import bench_config
    from edge.executors.native import NativeExecutor
    from edge.kv_budget import kv_pool
    from edge.load import resolve_limits
    from edge.runtime import Runtime

    config = bench_config()
    limits = resolve_limits(_engine_limits(spec), context, 1, config)
    pool = kv_pool(spec, kv, context, 1, config)
    executor = NativeExecutor.open(folder, spec, limits, pool_bytes=pool.pool_bytes, threads=threads, isa=isa)
    return Runtime(spec, executor, pool, limits, config, kv.preset)
