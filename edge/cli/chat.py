"""`edge chat`: its arguments. The chat itself is chat_session.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge.cli.options import (
    budget_option,
    context_option,
    force_package_option,
    isa_option,
    kv_budget_option,
    kv_policy_option,
    kv_preset_option,
    max_tokens_option,
    model_option,
    package_and_words,
    prefix_option,
    read_budget_option,
    sampling_options,
    sampling_params,
    template_option,
    threads_option,
)
from edge.text.normalise import prompt_text

if TYPE_CHECKING:
    from edge.pages.read_budget import ReadBudget
    from edge.policies import PolicyName
    from edge.presets import PresetName


@click.command(name="chat")
@click.argument("words", nargs=-1, metavar="PACKAGE")
@model_option()
@click.option("--system", default="", help="A system message for the whole chat.")
@click.option("-f", "--file", type=click.Path(path_type=Path), help="A text to talk about: it stands in front of the first "
              "message, in the same turn. UTF-8.")  # fmt: skip
@prefix_option()
@template_option()
@max_tokens_option(1024)
@context_option("yaml/runtime/inference.yaml or what --file needs, at most the model's own; all that --kv-budget holds")
@kv_preset_option()
@kv_policy_option()
@kv_budget_option()
@read_budget_option()
@sampling_options
@threads_option()
@isa_option()
@budget_option()
@force_package_option()
def command(
    words: tuple[str, ...],
    model: Path | None,
    system: str,
    file: Path | None,
    prefix: str | None,
    chat_template_file: Path | None,
    max_tokens: int,
    context: int | None,
    kv_preset: PresetName | None,
    kv_policy: PolicyName | None,
    kv_budget: int | None,
    read_budget: ReadBudget | None,
    temp: float,
    top_k: int,
    top_p: float,
    min_p: float,
    repeat_penalty: float,
    seed: int | None,
    threads: int | None,
    isa: str,
    ignore_budget: bool,
    ignore_verdict: bool,
) -> None:
    """Talk to PACKAGE (NAME.edge). Ctrl-C stops an answer, Ctrl-D leaves, /? shows the commands inside.

    With a pipe on standard input every line is a message, and the answers go to standard output.

    A long document in a small budget: edge chat NAME.edge --file manual.md --kv-preset balanced --kv-budget 64MB; one that is
    asked often: edge bake
    """
    path, rest = package_and_words(words, model, takes_text=False)
    if rest:
        raise click.UsageError(f"one package at a time, {rest[0]!r} is too much", click.get_current_context())
    if file is not None and prefix is not None:
        raise click.UsageError("--file and --prefix: a chat begins with one of them", click.get_current_context())
    from edge.cli.chat_session import ChatOptions, run_chat
    from edge.cli.conversation import ChatSettings

    sampling = sampling_params(temp, top_k, top_p, min_p, repeat_penalty, seed)
    options = ChatOptions(
        settings=ChatSettings(sampling, max_tokens, system and prompt_text(system, "--system")),
        context=context,
        kv_preset=kv_preset,
        kv_policy=kv_policy,
        kv_budget=kv_budget,
        read_budget=read_budget,
        file=file,
        prefix=prefix,
        threads=threads,
        isa=isa,
        template_file=chat_template_file,
        force=ignore_verdict,
        ignore_budget=ignore_budget,
    )
    run_chat(path, options)
