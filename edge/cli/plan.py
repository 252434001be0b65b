"""`edge plan`: the memory of a model or a package, before anything is loaded."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from edge.cli.build_extra import need_build_extra
from edge.cli.models import find_model, is_package
from edge.cli.options import context_option, json_option, offline_option, target_option, threads_option, tier_option
from edge.cli.progress import terminal_progress
from edge.cli.screen import shown
from edge.cli.tables import format_table
from edge.units import human_bytes

if TYPE_CHECKING:
    from edge.package import Package
    from edge.planner import MemoryPlan


@click.command(name="plan")
@click.argument("model")
@tier_option("Precision of the weights, where MODEL is not built yet.")
@target_option()
@context_option()
@click.option("--sequences", type=click.IntRange(min=1), default=1, show_default=True, help="Sequences at once.")
@threads_option()
@offline_option()
@json_option()
def command(
    model: str,
    tier: str,
    target: str,
    context: int | None,
    sequences: int,
    threads: int | None,
    offline: bool,
    as_json: bool,
) -> None:
    """Show the memory that MODEL (a package, a catalog name or a GGUF file) will need, and what would fit."""
    if is_package(Path(model)):
        from edge.footprint import package_plan
        from edge.package import Package

        package = Package.open(Path(model), force=True)
        tier, target = _built_for(package, tier, target)
        plan = package_plan(package, context=context, sequences=sequences, threads=threads)
    else:
        need_build_extra("edge plan of a model that is not built")
        from calibration.tiers import load_tier
        from edge.devices import load_device
        from engines.sizes import model_plan
        from engines.sources.base import open_source

        chosen = load_tier(tier)  # an unknown tier or target is said before anything is downloaded
        load_device(target)
        with terminal_progress() as progress:
            found = find_model(model, progress, offline=offline)
        source = open_source(found.path)
        plan = model_plan(source, chosen, target, context=context, sequences=sequences, threads=threads)
    if as_json:
        row = dataclasses.asdict(plan) | {"model": model, "tier": tier, "target": target, "sequences": sequences,
                                          "total": plan.total, "fits": plan.fits}  # fmt: skip
        click.echo(json.dumps(row))
        return
    click.echo(f"{shown(model)}, {tier}, {target}, context {plan.context}, sequences {sequences}")
    click.echo(plan_table(plan))


def _built_for(package: Package, tier: str, target: str) -> tuple[str, str]:
    """Tier and target of the package. UsageError where the command line asks for others: a package is what it is."""
    manifest, context = package.manifest, click.get_current_context()
    for name, asked, built in (("tier", tier, manifest.tier), ("target", target, manifest.target)):
        if asked != built and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} {asked}: {package.path} was built with {built}. Leave --{name} out", context)
    return manifest.tier, manifest.target


def plan_table(plan: MemoryPlan) -> str:
    """The rows of a plan, what is available, and what would fit."""
    rows = [[name, human_bytes(size)] for name, size in plan.rows]
    rows += [["total", human_bytes(plan.total)], ["available", human_bytes(plan.available)]]
    largest = "no context fits" if plan.largest_context is None else f"largest context that fits: {plan.largest_context}"
    return f"{format_table(rows, right=frozenset({1}))}\n{'fits' if plan.fits else 'DOES NOT FIT'}; {largest}"
