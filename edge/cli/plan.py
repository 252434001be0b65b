"""`edge plan`: the memory of a model or a package, before anything is loaded; for a GPU also its build and its speed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click
from click.core import ParameterSource

from edge.cli.build_extra import need_build_extra
from edge.cli.models import find_model, is_package
from edge.cli.options import (
    context_option,
    json_option,
    kv_budget_option,
    kv_policy_option,
    kv_preset_option,
    offline_option,
    prefix_option,
    target_option,
    threads_option,
    tier_option,
)
from edge.cli.plan_text import CpuLoadPlan, plan_row, plan_text
from edge.cli.progress import terminal_progress
from edge.cli.screen import shown
from edge.config import InferenceConfig
from edge.devices import EngineKind, choose_engine
from edge.errors import RequestError
from edge.kv_budget import KvChoice, choose_kv
from edge.pages.linear import SEQUENCES
from edge.policies import PolicyName
from edge.presets import PRESETS, PresetName, default_preset, presets_for

if TYPE_CHECKING:
    from edge.package import Package
    from edge.target_plan import TargetPlan


@dataclass(frozen=True, slots=True)
class Load:
    """What is to be planned for."""

    context: int | None  # tokens; None: the target's default
    preset: PresetName | None  # None: the default
    kv_budget: int | None  # bytes; None: what the load needs
    policy: PolicyName | None
    sequences: int
    threads: int | None
    prefix: str | None  # baked into the package


@click.command(name="plan")
@click.argument("model")
@tier_option("Precision of the weights, where MODEL is not built yet.")
@target_option()
@click.option("--engine", type=click.Choice(get_args(EngineKind)), help="Kind of engine.  [default: the target's first]")
@context_option("of the device, or yaml/runtime/inference.yaml for cpu; at most the model's own")
@kv_preset_option("--preset", more_variables=("EDGE_PRESET",))
@kv_policy_option()
@kv_budget_option()
@click.option("--sequences", type=click.IntRange(min=1), default=1, show_default=True, help="Sequences at once.")
@prefix_option()
@threads_option()
@offline_option()
@json_option()
def command(
    model: str,
    tier: str,
    target: str,
    engine: EngineKind | None,
    context: int | None,
    kv_preset: PresetName | None,
    kv_policy: PolicyName | None,
    kv_budget: int | None,
    sequences: int,
    prefix: str | None,
    threads: int | None,
    offline: bool,
    as_json: bool,
) -> None:
    """Show the memory that MODEL (a package, a catalog name, a GGUF file or a model folder) will need, and what would fit.

    With the largest context of each KV preset; for a GPU also what its last build step takes and an estimate of its speed.
    """
    load = Load(context, kv_preset, kv_budget, kv_policy, sequences, threads, prefix)
    if is_package(Path(model)):
        from edge.package import Package

        package = Package.open(Path(model), force=True)
        tier, target = _built_for(package, tier, target, engine)
        plan = _package_plan(package, target, load)
    else:
        if prefix is not None:
            raise click.UsageError(f"--prefix: {model} is no package, so nothing is baked into it", click.get_current_context())
        plan = _model_plan(model, tier, target, choose_engine(target, engine), load, offline)
    if as_json:
        asked = {"model": model, "tier": tier, "target": target, "sequences": sequences}
        click.echo(json.dumps(plan_row(plan) | asked))
        return
    click.echo(plan_text(plan, shown(model), tier, target, sequences))


def _package_plan(package: Package, target: str, load: Load) -> CpuLoadPlan | TargetPlan:
    from edge.baked.folder import open_baked
    from edge.footprint import package_plan, package_presets, package_target_plan

    manifest = package.manifest
    _check(load, "cpu" if manifest.engine is None else manifest.engine.kind, target, manifest.capabilities.presets)
    if manifest.engine is not None:
        return package_target_plan(package, context=load.context)
    baked = None if load.prefix is None else open_baked(package.path, load.prefix)
    kv = choose_kv(package, load.preset, load.kv_budget, load.policy, baked)
    memory = package_plan(
        package,
        kv,
        context=load.context,
        sequences=load.sequences,
        threads=load.threads,
        baked_bytes=0 if baked is None else baked.header.file_bytes,
    )
    return CpuLoadPlan(memory, kv, package_presets(package, memory, kv, sequences=load.sequences, threads=load.threads))


def _model_plan(model: str, tier: str, target: str, kind: EngineKind, load: Load, offline: bool) -> CpuLoadPlan | TargetPlan:
    need_build_extra("edge plan of a model that is not built")
    from calibration.tiers import load_tier
    from engines.sizes import model_plan
    from engines.sources.base import open_source
    from engines.target_sizes import model_target_plan

    chosen = load_tier(tier)  # what is wrong with the words is said before anything is downloaded
    _check(load, kind, target, tuple(PRESETS) if kind == "cpu" else ("exact",))
    with terminal_progress() as progress:
        found = find_model(model, progress, offline=offline, hashed=False)
    source = open_source(found.path, load.context)
    if kind == "cpu":
        offered = presets_for(source.spec.head_dim)
        _check(load, kind, target, offered)
        config = InferenceConfig.load()
        preset = load.preset or default_preset(config.kv_preset, offered)
        kv = KvChoice(preset, load.kv_budget, policy=load.policy or config.kv_policy)
        memory, presets = model_plan(
            source, chosen, target, kv, context=load.context, sequences=load.sequences, threads=load.threads
        )
        return CpuLoadPlan(memory, kv, presets)
    return model_target_plan(source, chosen, target, kind, context=load.context)


def _check(load: Load, kind: EngineKind, target: str, presets: tuple[str, ...]) -> None:
    """RequestError, or UsageError, where an engine of `kind` does not take such a load."""
    if load.preset is not None and load.preset not in presets:
        reason = (
            "Of this model, that is: its heads, or what was measured when it was built, do not allow the others"
            if kind == "cpu"
            else "The others need paged KV in that precision, which this version does not have for them"
        )
        raise RequestError(
            f"--kv-preset {load.preset}: engines for {target} can do: {', '.join(presets)}. {reason}. "
            f"Use --kv-preset {presets[-1]}"
        )
    if kind == "cpu":
        return
    if load.prefix is not None:
        raise RequestError(f"--prefix: a {kind} engine has no baked prefixes. Leave it out")
    if load.kv_budget is not None:
        raise RequestError(f"--kv-budget: the caches of a {kind} engine have a fixed length. Leave it out, and give --ctx-size")
    if load.sequences > SEQUENCES:
        raise RequestError(
            f"--sequences {load.sequences}: a {kind} engine of this version carries {SEQUENCES}. Leave --sequences out, or use "
            "--target cpu"
        )
    context = click.get_current_context()
    if context.get_parameter_source("threads") is ParameterSource.COMMANDLINE:
        raise click.UsageError(f"--threads is for cpu engines, and this one is {kind}. Leave it out", context)


def _built_for(package: Package, tier: str, target: str, engine: EngineKind | None) -> tuple[str, str]:
    """Tier and target of the package. UsageError where the command line asks for others: a package is what it is."""
    manifest, context = package.manifest, click.get_current_context()
    kind = "cpu" if manifest.engine is None else manifest.engine.kind
    asked = (("tier", tier, manifest.tier), ("target", target, manifest.target), ("engine", engine, kind))
    for name, wanted, built in asked:
        if wanted != built and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} {wanted}: {package.path} was built with {built}. Leave --{name} out", context)
    return manifest.tier, manifest.target
