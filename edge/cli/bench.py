"""`edge bench`: how fast a package runs here, and how close that is to what the machine allows.

The first word is a package, or a subcommand (a package of that name can still be given as ./compare).
"""

from __future__ import annotations

import importlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import edge
from edge.cli.bench_table import figures_table
from edge.cli.options import (
    budget_option,
    force_package_option,
    isa_option,
    json_option,
    kv_budget_option,
    kv_policy_option,
    kv_preset_option,
    read_budget_option,
    rounds_option,
    threads_option,
)
from edge.errors import RequestError

if TYPE_CHECKING:
    from edge.pages.read_budget import ReadBudget
    from edge.policies import PolicyName
    from edge.presets import PresetName

SPARE_TOKENS = 64  # of context behind prompt and answer, as in the measurements of other engines that ours stand beside

# word: (module, one line of help). The function in the module is called `command`.
SUBCOMMANDS: dict[str, tuple[str, str]] = {
    "compare": ("edge.cli.bench_compare", "Other engines beside ours, in turn, on the same model."),
    "kernels": ("edge.cli.bench_kernels", "Each kernel of each instruction set, beside the limit."),
    "kv": ("edge.cli.bench_kv", "KV presets: memory, speed, likeness, needles."),
    "shape": ("edge.cli.bench_shape", "A model of given sizes and random weights."),
}


class BenchCommand(click.Command):
    """A command whose first word may name another one, which is imported then."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args and args[0] in SUBCOMMANDS:
            other: click.Command = importlib.import_module(SUBCOMMANDS[args[0]][0]).command
            return other.make_context(f"{info_name} {args[0]}", args[1:], parent=parent, **extra)
        return super().make_context(info_name, args, parent=parent, **extra)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_usage(ctx, formatter)
        formatter.write_usage(ctx.command_path, f"{'|'.join(SUBCOMMANDS)} [OPTIONS] ...", prefix="   or: ")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_line) for name, (_, help_line) in SUBCOMMANDS.items()])


@click.command(name="bench", cls=BenchCommand)
@click.argument("package", type=click.Path(path_type=Path))
@click.option("--prompt", type=click.IntRange(min=1), default=512, show_default=True, help="Tokens of the prompt.")
@click.option("--decode", type=click.IntRange(min=1), default=64, show_default=True, help="Tokens to decode after it.")
@kv_preset_option()
@kv_policy_option()
@kv_budget_option()
@read_budget_option()
@rounds_option(1)
@threads_option()
@isa_option()
@budget_option()
@force_package_option()
@json_option()
def command(
    package: Path,
    prompt: int,
    decode: int,
    kv_preset: PresetName | None,
    kv_policy: PolicyName | None,
    kv_budget: int | None,
    read_budget: ReadBudget | None,
    rounds: int,
    threads: int | None,
    isa: str,
    ignore_budget: bool,
    ignore_verdict: bool,
    as_json: bool,
) -> None:
    """Measure PACKAGE on random tokens: load, prefill, decode, memory, and the share of what this machine allows.

    The limit is measured in the same run: the bytes that a token must read by the best bandwidth, or its operations by the rate
    of the dot products, whichever takes longer.
    """
    from edge.bench.run import Load, bench_config, bench_runtime
    from edge.cli.kv_figures import kv_figures
    from edge.executors.native import available_threads
    from edge.footprint import check_prompt_budget, open_runtime, package_plan
    from edge.kv_budget import choose_kv
    from edge.package import Package
    from edge.runnable import check_runs_here

    used_threads = threads or available_threads()
    start = time.perf_counter()
    opened = Package.open(package, force=ignore_verdict)
    kv = choose_kv(opened, kv_preset, kv_budget, kv_policy)
    check_runs_here(opened, kv.preset)
    context = bench_context(prompt, decode, opened.manifest.limits.max_context)
    if kv.budget_bytes is not None:
        context = min(context, check_prompt_budget(opened, kv, f"--prompt {prompt} with --decode {decode}", prompt + decode))
    plan = package_plan(opened, kv, context=context, threads=used_threads, with_text=False)
    runtime = open_runtime(
        opened,
        plan,
        kv,
        ask_for=ask_for,
        threads=used_threads,
        isa=isa,
        ignore_budget=ignore_budget,
        config=bench_config(),
        read_budget=read_budget,
    )
    load = time.perf_counter() - start
    figures = bench_runtime(runtime, plan, Load(prompt, decode, rounds), used_threads) | kv_figures(runtime, kv)
    show({"package": str(package), "tier": opened.manifest.tier, "load_s": load}, figures, as_json)


def bench_context(prompt: int, decode: int, largest: int) -> int:
    """Tokens to plan for. RequestError where the engine cannot hold what is to be measured."""
    if prompt + decode > largest:
        raise RequestError(
            f"--prompt {prompt} and --decode {decode} are {prompt + decode} tokens, the engine takes {largest}. Shorten one"
        )
    return min(prompt + decode + SPARE_TOKENS, largest)


def ask_for(context: int) -> str:
    """How a user asks this command for a context of so many tokens."""
    tokens = context - SPARE_TOKENS
    return f"--prompt and --decode of {tokens} tokens together" if tokens > 1 else "nothing that can be measured"


def show(model: dict[str, Any], figures: dict[str, Any], as_json: bool) -> None:
    """Prints the figures of `model`, behind what says which model and code it was."""
    from edge.bench.commit import code_commit

    row = {"engine": "edge-zero", "version": edge.__version__, "commit": code_commit(), **model, **figures}
    click.echo(json.dumps(row) if as_json else figures_table(row))
