"""`edge build`: a package from a model."""

from __future__ import annotations

import json
from pathlib import Path

import click

from edge.cli.build_extra import need_build_extra
from edge.cli.main import EXIT_ERROR
from edge.cli.models import find_model
from edge.cli.options import budget_option, json_option, offline_option, target_option, tier_option
from edge.cli.progress import terminal_progress
from edge.monitors.memory import process_memory
from edge.units import planned_and_used


@click.command(name="build")
@click.argument("model")
@tier_option("Precision of the weights: fp16, int8 or int4 (yaml/tiers).")
@target_option()
@click.option("-o", "--out", type=click.Path(path_type=Path), help="The package folder.  [default: NAME.edge here]")
@click.option("--requantise", is_flag=True, help="Round also what the source has in more bits than the tier.")
@click.option("--verify-tokens", type=click.IntRange(min=2), help="Tokens of text for the verdicts.  [default: the tier's]")
@click.option("--force", is_flag=True, help="Replace a package that stands there.")
@budget_option()
@offline_option()
@json_option()
def command(
    model: str,
    tier: str,
    target: str,
    out: Path | None,
    requantise: bool,
    verify_tokens: int | None,
    force: bool,
    ignore_budget: bool,
    offline: bool,
    as_json: bool,
) -> int:
    """Build NAME.edge from MODEL (a catalog name or a GGUF file): export, quantise, lower for the target, verify."""
    need_build_extra("edge build")
    from calibration.tiers import load_tier
    from edge.devices import load_device
    from engines.build import build_package
    from engines.sizes import build_bytes
    from engines.sources.base import open_source

    recipe = load_tier(tier)  # an unknown tier or target is said before anything is downloaded
    load_device(target)
    with terminal_progress() as progress:
        found = find_model(model, progress, offline=offline)
        planned = build_bytes(open_source(found.path), recipe, requantise)
        report = build_package(
            found.path,
            model_name=found.name,
            tier=tier,
            target=target,
            out=out or Path(f"{found.stem}.edge"),
            requantise=requantise,
            verify_tokens=verify_tokens,
            progress=progress,
            force=force,
            ignore_budget=ignore_budget,
        )
    peak = process_memory().peak
    if as_json:
        click.echo(json.dumps(report.as_dict() | {"planned_bytes": planned, "peak_rss_bytes": peak}))
    else:
        click.echo(report.text())
        click.echo(f"  memory of the build: {planned_and_used(planned, peak)}")
    return 0 if report.passed else EXIT_ERROR
