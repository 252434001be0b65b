"""`edge bench kv`: what each KV preset of a package takes, how fast it is, and what it loses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

import edge
from edge.cli.options import (
    budget_option,
    force_package_option,
    isa_option,
    json_option,
    read_budget_option,
    threads_option,
)
from edge.cli.progress import terminal_progress
from edge.cli.screen import shown
from edge.errors import RequestError
from edge.policies import RAISED_SHARES
from edge.presets import PRESETS, PresetName

if TYPE_CHECKING:
    from edge.bench.kv import KvLoad
    from edge.kv_eval.texts import Text
    from edge.package import Package
    from edge.pages.read_budget import ReadBudget
    from edge.policies import PolicyName


def _read_presets(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[PresetName, ...] | None:
    """Names with commas between them; None without any."""
    asked = _names(context, parameter, values, tuple(PRESETS))
    return tuple(name for name in PRESETS if name in asked or name == "exact") if values else None


def _read_policies(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[PolicyName, ...]:
    """Names with commas between them; all without."""
    asked = _names(context, parameter, values or tuple(RAISED_SHARES), tuple(RAISED_SHARES))
    return tuple(name for name in RAISED_SHARES if name in asked)


def _names(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...], known: tuple[str, ...]
) -> tuple[str, ...]:
    """Of an option that may be repeated, all together."""
    asked = tuple(name.strip() for value in values for name in value.split(","))
    for name in asked:
        if name not in known:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(known)}.", context, parameter)
        if asked.count(name) > 1:
            raise click.BadParameter(f"{name!r} is given twice. Give each name once.", context, parameter)
    return asked


@click.command(name="kv")
@click.argument("package", type=click.Path(path_type=Path))
@click.option(
    "-c", "--context", "--ctx-size", "context", type=click.IntRange(min=1), envvar=["EDGE_CTX_SIZE", "EDGE_CONTEXT"],
    show_envvar=True, help="Tokens of each document.  [default: 4096, at most the engine's]",
)  # fmt: skip
@click.option(
    "--presets",
    multiple=True,
    callback=_read_presets,
    metavar="NAMES",
    help="With commas; may be repeated. `exact` always runs.  [default: the engine's]",
)
@click.option(
    "--policies",
    multiple=True,
    callback=_read_policies,
    metavar="NAMES",
    help="With commas, for each preset but `exact`; may be repeated. `uniform`, the preset by itself, always runs.  "
    "[default: all]",
)
@click.option("--text", "files", multiple=True, type=click.Path(path_type=Path), help="Use this text; may be repeated.  "
              "[default: the text that builds read, and licences, policies and books that this machine has]")  # fmt: skip
@click.option(
    "--documents", type=click.IntRange(min=1), default=4, show_default=True, help="To run, as far as texts are long enough."
)
@click.option(
    "--tokens",
    type=click.IntRange(min=1),
    default=2048,
    show_default=True,
    help="Positions to compare, in all.",
)
@click.option("--needles", type=click.IntRange(min=0), default=100, show_default=True, help="Facts to be found; 0: none.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the facts and where they stand.")
@click.option("--png", type=click.Path(path_type=Path), help="Draw quality against bytes into this file (bench extra).")
@read_budget_option("all: presets run without")
@threads_option()
@isa_option()
@budget_option()
@force_package_option()
@json_option()
def command(
    package: Path,
    context: int | None,
    presets: tuple[PresetName, ...] | None,
    policies: tuple[PolicyName, ...],
    files: tuple[Path, ...],
    documents: int,
    tokens: int,
    needles: int,
    seed: int,
    png: Path | None,
    read_budget: ReadBudget | None,
    threads: int | None,
    isa: str,
    ignore_budget: bool,
    ignore_verdict: bool,
    as_json: bool,
) -> None:
    """Run long texts through PACKAGE under each KV preset and policy, side by side in one engine: memory, speed, likeness to
    exact pages, needles, and whether the preset keeps its gate. With --read-budget presets that seal run once more, their
    tokens reading some pages alone: every token that is compared, and the questions.

    Needles and chains of decisions stand in the documents, and in shorter ones besides; they are asked once the pages in which
    they stand are sealed. Then the last positions of each document are compared, tokens being given, not chosen.
    """
    from edge.bench.commit import code_commit
    from edge.bench.kv import KvLoad, measure_kv
    from edge.bench.kv_choice import CONTROL
    from edge.bench.plot import need_matplotlib
    from edge.cli.kv_table import kv_tables
    from edge.package import Package
    from edge.pages.read_budget import ReadAll

    if png is not None:
        need_matplotlib(png, "--png")
    opened = Package.open(package, force=ignore_verdict)
    budget = read_budget or ReadAll()
    load = KvLoad(_context(opened, context), _presets(opened, presets), documents, tokens, needles, seed, budget, policies)
    _check_memory(opened, load, threads, ignore_budget)
    raising = {form.policy for form in load.forms if form.raises}
    if raising and CONTROL not in raising:
        _say(f"without `{CONTROL}` in --policies nothing stands at equal bytes, and no policy becomes the default")
    try:
        with terminal_progress() as progress:
            figures = measure_kv(opened, load, _texts(files), progress, _say, threads=threads, isa=isa)
    except KeyboardInterrupt:
        click.echo("edge: stopped, nothing was kept. Less to measure: --presets, --policies, --documents, --context", err=True)
        raise
    commit = code_commit()
    title = f"{opened.spec.name} ({opened.manifest.tier}), edge-zero {edge.__version__} {commit or ''}".strip()
    if as_json:
        head = {"version": edge.__version__, "commit": commit, "package": str(package), "tier": opened.manifest.tier}
        click.echo(json.dumps({**head, **figures.as_dict()}))
    else:
        click.echo(f"{shown(title)}\n\n{kv_tables(figures)}")
    if png is not None:  # behind the figures: what cannot be drawn takes none of them along
        from edge.bench.kv_plot import plot_kv

        plot_kv(figures, title, png)


def _say(line: str) -> None:
    """One line, whatever names of files hold."""
    click.echo(f"edge: {shown(' '.join(line.splitlines()))}", err=True)


def _context(package: Package, asked: int | None) -> int:
    """RequestError where the engine takes less."""
    largest = package.manifest.limits.max_context
    context = min(4096, largest) if asked is None else asked
    if context > largest:
        raise RequestError(f"{package.path}: --context {context}, its engine takes {largest}. Ask for that at most")
    return context


def _presets(package: Package, asked: tuple[PresetName, ...] | None) -> tuple[PresetName, ...]:
    """Those asked for, or all of the engine; RequestError where it lacks one."""
    from edge.runnable import check_here, check_offered

    offered = package.manifest.capabilities.presets
    chosen = tuple(name for name in PRESETS if name in offered) if asked is None else asked
    for preset in chosen:
        # One whose gate failed is measured too: that is what this command is for.
        check_offered(package.manifest, str(package.path), preset=preset, prefixes=False)
    check_here(package)
    return chosen


def _texts(files: tuple[Path, ...]) -> tuple[Text, ...]:
    from edge.kv_eval.texts import Text, read_texts, texts_at_hand

    if files:
        return read_texts(files)
    from calibration.build_text import NAME, read_build_text

    return (Text(NAME, read_build_text()), *texts_at_hand())


def _check_memory(package: Package, load: KvLoad, threads: int | None, ignore_budget: bool) -> None:
    """BudgetError where the sequences of all presets together do not fit into this machine."""
    from edge.contract import SEAL_TOKENS
    from edge.devices import load_device
    from edge.executors.cpu_plan import CpuPlan
    from edge.executors.native import available_threads, workspace_bytes
    from edge.kv_eval.fed_sequence import shared_pool
    from edge.manifest import Limits
    from edge.monitors.memory import machine_memory
    from edge.package import PLAN
    from edge.planner import MemorySizes, check_budget, plan_memory

    plan, spec, used_threads = CpuPlan.read(package.file(PLAN)), package.spec, threads or available_threads()
    rows = 2 * 4 * SEAL_TOKENS * spec.vocab_size  # the logits of `exact`, and a copy of them
    sizes = MemorySizes(
        weights=plan.weight_bytes,
        pool=lambda tokens: shared_pool(spec, load.forms, tokens, load.budget).pool_bytes,
        workspace=lambda tokens: workspace_bytes(plan, spec, Limits(tokens, SEAL_TOKENS, 1, SEAL_TOKENS), used_threads) + rows,
        host=load_device(package.manifest.target).host.base_bytes + load_device(package.manifest.target).host.text_bytes,
    )
    memory = plan_memory(sizes, context=load.context, longest_context=load.context, available=machine_memory().available)
    if not ignore_budget:
        check_budget(memory, str(package.path), lambda tokens: f"--context {tokens}")
