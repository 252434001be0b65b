"""`edge build`: a package from a model, and the last step of one that its device must do."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from click.core import ParameterSource

from edge.cli.build_extra import need_build_extra
from edge.cli.main import EXIT_ERROR
from edge.cli.models import find_model, is_package_name
from edge.cli.options import budget_option, context_option, json_option, offline_option, target_option, tier_option
from edge.cli.progress import terminal_progress
from edge.cli.screen import shown
from edge.devices import EngineKind
from edge.monitors.memory import process_memory
from edge.units import human_bytes, planned_and_used

if TYPE_CHECKING:
    from edge.progress import Progress
    from engines.build_report import BuildReport
    from engines.tensorrt.finish import FinishReport

_OF_A_MODEL = ("tier", "target", "engine", "context", "out", "requantise", "verify_tokens", "offline")  # not of a package


@click.command(name="build")
@click.argument("model")
@tier_option("Precision of the weights: fp16, int8 or int4 (yaml/tiers).")
@target_option()
@click.option("--engine", type=click.Choice(get_args(EngineKind)), help="Kind of engine.  [default: the target's first]")
@context_option("the target's; a cpu engine takes any, and only a model with long-rope heeds it")
@click.option(
    "--finish", is_flag=True, help="Do the last step of a TensorRT engine here, on its device; MODEL may be a package."
)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    help="The package folder.  [default: NAME.edge, or NAME-TARGET.edge]",
)
@click.option("--requantise", is_flag=True, help="Round also what the source has in more bits than the tier.")
@click.option("--verify-tokens", type=click.IntRange(min=2), help="Tokens of text for the verdicts.  [default: the tier's]")
@click.option("--force", is_flag=True, help="Replace a package, or with --finish a plan, that stands there.")
@budget_option()
@offline_option()
@json_option()
def command(
    model: str,
    engine: str | None,
    finish: bool,
    force: bool,
    ignore_budget: bool,
    as_json: bool,
    **asked: Any,
) -> int:
    """Build NAME.edge from MODEL (a catalog name, a GGUF file or a model folder): export, quantise, lower for the target,
    verify.

    TensorRT engines are built by the device itself: NAME.edge holds all but the plan then, and `edge build NAME.edge --finish`
    makes it there.
    """
    with terminal_progress() as progress:
        if is_package_name(model):
            _check_package_words(model, finish)
            return _finish(Path(model), force, ignore_budget, as_json, progress)
        report = _build(model, engine, finish, force, ignore_budget, progress, **asked)
        if finish and report.passed:
            click.echo(report.text(), err=True)
            return _finish(report.path, force, ignore_budget, as_json, progress)
    if finish:
        step = shown(f"edge build {shlex.quote(str(report.path))} --finish")
        click.echo(f"edge: not finished, since a verdict failed. To do so all the same: {step}", err=True)
    peak = process_memory().peak
    if as_json:
        click.echo(json.dumps(report.as_dict() | {"peak_rss_bytes": peak}))
    else:
        click.echo(report.text())
        click.echo(f"  memory of the build: {planned_and_used(report.planned_bytes, peak)}{_builder_text(report)}")
        if report.next_step:
            click.echo(f"  {report.next_step}")
    return 0 if report.passed else EXIT_ERROR


def _check_package_words(model: str, finish: bool) -> None:
    """UsageError for a package without its last step, or with options of a build from a model."""
    context = click.get_current_context()
    if not finish:
        fact = f"{model} is a package, and a build starts from a model"
        raise click.UsageError(f"{fact}. The last step of a package: edge build {shlex.quote(model)} --finish", context)
    # Variables are ambient, and meant for builds from models.
    typed = [
        next(word for word in option.opts if word.startswith("--"))
        for option in context.command.params
        if option.name in _OF_A_MODEL and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    ]
    if typed:
        belong, them = ("belongs", "it") if len(typed) == 1 else ("belong", "them")
        fact = f"{model} is a package, and {', '.join(typed)} {belong} to a build from a model"
        raise click.UsageError(f"{fact}. Leave {them} out", context)


def _builder_text(report: BuildReport) -> str:
    if report.builder is None:
        return ""
    return f"; the builder {human_bytes(report.builder.peak_bytes)} in {report.builder.seconds:.0f} s"


def _build(
    model: str,
    engine: Any,
    finish: bool,
    force: bool,
    ignore_budget: bool,
    progress: Progress,
    *,
    tier: str,
    target: str,
    context: int | None,
    out: Path | None,
    requantise: bool,
    verify_tokens: int | None,
    offline: bool,
) -> BuildReport:
    need_build_extra("edge build")
    from calibration.tiers import load_tier
    from engines.build import BuildRequest, build_package, check_engine_kind

    load_tier(tier)  # an unknown tier, target or engine is said before anything is downloaded
    kind = check_engine_kind(target, engine)
    if finish and kind != "tensorrt":
        raise click.UsageError(f"a {kind} engine has no last step. Leave --finish out", click.get_current_context())
    if finish:
        from engines.tensorrt.finish import check_device

        check_device(target)
    found = find_model(model, progress, offline=offline)
    request = BuildRequest(
        model=found.path,
        model_name=found.name,
        tier=tier,
        target=target,
        out=out or Path(f"{found.stem}.edge" if kind == "cpu" else f"{found.stem}-{target}.edge"),
        engine=engine,
        context=context,
        requantise=requantise,
        verify_tokens=verify_tokens,
        force=force,
        ignore_budget=ignore_budget,
    )
    return build_package(request, progress)


def _finish(package: Path, force: bool, ignore_budget: bool, as_json: bool, progress: Progress) -> int:
    from engines.tensorrt.finish import finish_package

    report: FinishReport = finish_package(package, force=force, ignore_budget=ignore_budget, progress=progress)
    click.echo(json.dumps(report.as_dict()) if as_json else report.text())
    return 0
