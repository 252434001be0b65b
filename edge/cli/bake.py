"""`edge bake`: prefixes in a package. What is computed and written is edge/baked."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge.cli.document import QUESTION_TOKENS, read_document
from edge.cli.options import (
    budget_option,
    force_package_option,
    isa_option,
    json_option,
    kv_preset_option,
    template_option,
    threads_option,
)
from edge.errors import RequestError
from edge.text.normalise import prompt_text

if TYPE_CHECKING:
    from edge.baked.prefix import BakedPrefix
    from edge.package import Package
    from edge.presets import PresetName


@click.command(name="bake")
@click.argument("package", type=click.Path(path_type=Path))
@click.option("--name", help="What the prefix is called: edge chat PACKAGE --prefix NAME.")
@click.option("-f", "--file", type=click.Path(path_type=Path), help="A text to talk about, as edge chat --file has it. UTF-8.")
@click.option("--system", default="", help="The system message of chats with it.")
@click.option("--system-file", type=click.Path(path_type=Path), help="A text that is the system message: a glossary, rules.")
@click.option("--cuts", type=click.IntRange(min=0, max=64), default=4, show_default=True,
              help="Ends of sections, beside the end of all, at which a prompt may go on by itself.")  # fmt: skip
@click.option("--remove", metavar="NAME", help="Remove a prefix.")
@template_option()
@kv_preset_option()
@threads_option()
@isa_option()
@budget_option()
@click.option("--force", is_flag=True, help="Replace a prefix of that name. One that is damaged is replaced without it.")
@force_package_option(takes_force=False)
@json_option()
def command(
    package: Path,
    name: str | None,
    file: Path | None,
    system: str,
    system_file: Path | None,
    cuts: int,
    remove: str | None,
    chat_template_file: Path | None,
    kv_preset: PresetName | None,
    threads: int | None,
    isa: str,
    ignore_budget: bool,
    force: bool,
    ignore_verdict: bool,
    as_json: bool,
) -> None:
    """Compute a long text once and keep its KV pages in PACKAGE, for chats that begin with it.

    Without --name: the prefixes that are baked.

    \b
    edge bake NAME.edge --name manual --file manual.md
    edge chat NAME.edge --prefix manual
    """
    context = click.get_current_context()
    if remove is not None and name is not None:
        raise click.UsageError("--remove takes the name of what goes; --name is for what comes. Give one of them", context)
    if remove is not None and (file is not None or system or system_file is not None):
        raise click.UsageError("--remove takes no text. Leave --file, --system and --system-file out", context)
    if name is None and (file is not None or system or system_file is not None):
        raise click.UsageError("what is baked needs a name: --name NAME", context)
    if system and system_file is not None:
        raise click.UsageError("--system and --system-file: give one of them", context)
    if name is not None and not (file is not None or system or system_file is not None):
        raise click.UsageError("nothing to bake. Give --file FILE, or a system message", context)
    from edge.baked.folder import check_name, is_damaged, remove_baked
    from edge.cli.baked_table import baked_row, baked_text, list_baked, list_rows
    from edge.package import Package

    opened = Package.open(package, force=ignore_verdict or name is None)
    if remove is not None:
        path = remove_baked(opened.path, remove)
        click.echo(json.dumps({"removed": str(path)}) if as_json else f"removed {path}")
        return
    if name is None:
        rows = list_rows(opened)
        click.echo(json.dumps({"package": str(opened.path), "prefixes": rows}) if as_json else list_baked(opened, rows))
        return
    check_name(name)
    replaces = force or is_damaged(opened.path, name)
    baked = _bake(
        opened, name, file, system, system_file, cuts, chat_template_file, kv_preset, threads, isa, ignore_budget, replaces
    )
    row = baked_row(opened, baked)
    click.echo(json.dumps(row) if as_json else baked_text(opened, row))


def _bake(
    package: Package,
    name: str,
    file: Path | None,
    system: str,
    system_file: Path | None,
    cuts: int,
    template_file: Path | None,
    kv_preset: PresetName | None,
    threads: int | None,
    isa: str,
    ignore_budget: bool,
    replaces: bool,
) -> BakedPrefix:
    from edge.baked.bake import BakeRequest, bake_prefix
    from edge.baked.sections import plan_cuts
    from edge.baked.write import check_free
    from edge.cli.progress import terminal_progress
    from edge.footprint import open_runtime, package_plan
    from edge.kv_budget import choose_kv
    from edge.runnable import check_offered, check_runs_here
    from edge.text.opening import find_opening
    from edge.text.template import ChatTemplate

    kv = choose_kv(package, kv_preset, None, "uniform")  # whoever begins with a prefix finds its pages at the preset
    check_runs_here(package, kv.preset)
    check_offered(package.manifest, str(package.path), preset=kv.preset, prefixes=True)
    check_free(package.path, name, replaces)
    tokenizer = package.open_tokenizer()
    check_length = partial(tokenizer.check_length, max_context=package.manifest.limits.max_context)
    system = _system(system, system_file, check_length)
    document = "" if file is None else read_document(file, check_length)
    template = ChatTemplate.open(package.path / "tokenizer", tokenizer, template_file)
    opening = find_opening(tokenizer, template, system, document)
    planned = plan_cuts(opening, cuts)
    texts = (("--system", system if system_file is None else ""), ("--system-file", system_file), ("--file", file))
    what = " and ".join(option if option == "--system" else f"{option} {given}" for option, given in texts if given)
    if not planned:
        raise RequestError(
            f"{what}: what a chat then begins with, whatever is asked, has {len(opening.token_ids)} tokens, "
            "less than a page of 32. Bake a longer text; if it is long, the chat template puts it behind the question"
        )
    tokens, limit = len(opening.token_ids), package.manifest.limits.max_context
    if tokens + QUESTION_TOKENS > limit:
        needed = f"which with a question needs a context of {tokens + QUESTION_TOKENS:,}; the engine takes {limit:,}"
        raise RequestError(f"{what}: {tokens:,} tokens, {needed}. Shorten it")
    plan = package_plan(package, kv, context=tokens + 1, threads=threads)
    with (
        open_runtime(
            package, plan, kv, ask_for=_ask_for_text, threads=threads, isa=isa, ignore_budget=ignore_budget
        ) as runtime,
        terminal_progress() as progress,
    ):
        return bake_prefix(package, runtime, BakeRequest(name, opening, planned, replaces), progress)


def _system(system: str, path: Path | None, check_length: Callable[[int], None]) -> str:
    if path is not None:
        return read_document(path, check_length, "--system-file")
    if system:
        check_length(len(system.encode("utf-8", "surrogateescape")))
        return prompt_text(system, "--system")
    return ""


def _ask_for_text(context: int) -> str:
    return f"a text of at most {context - 1} tokens"
