"""`edge plan`: the memory of a model or a package, before anything is loaded."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge.cli.models import find_model, is_package
from edge.cli.options import context_option, json_option, offline_option, target_option, threads_option, tier_option
from edge.cli.progress import human_bytes, terminal_progress
from edge.cli.tables import format_table

if TYPE_CHECKING:
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
    from edge.footprint import package_plan

    if is_package(Path(model)):
        from edge.package import Package

        package = Package.open(Path(model), force=True)
        plan, what = package_plan(package, context=context, sequences=sequences, threads=threads), package.manifest.tier
    else:
        from calibration.tiers import load_tier
        from engines.sizes import model_plan
        from engines.sources.base import open_source

        chosen = load_tier(tier)
        found = find_model(model, terminal_progress(), offline=offline)
        source = open_source(found.path)
        plan, what = model_plan(source, chosen, target, context=context, sequences=sequences, threads=threads), tier
    if as_json:
        row = dataclasses.asdict(plan) | {"model": model, "tier": what, "target": target, "sequences": sequences,
                                          "total": plan.total, "fits": plan.fits}  # fmt: skip
        click.echo(json.dumps(row))
        return
    click.echo(f"{model}, {what}, {target}, context {plan.context}, sequences {sequences}")
    click.echo(plan_table(plan))


def plan_table(plan: MemoryPlan) -> str:
    """The rows of a plan, what is available, and what would fit."""
    rows = [[name, human_bytes(size)] for name, size in plan.rows]
    rows += [["total", human_bytes(plan.total)], ["available", human_bytes(plan.available)]]
    largest = "no context fits" if plan.largest_context is None else f"largest context that fits: {plan.largest_context}"
    return f"{format_table(rows, right=frozenset({1}))}\n{'fits' if plan.fits else 'DOES NOT FIT'}; {largest}"
