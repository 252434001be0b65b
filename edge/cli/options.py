"""Options that several subcommands share: one spelling, one variable EDGE_<FLAG>, one help. Owns: names and defaults.
Needs: click. Never: behaviour."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from edge.sampling import SamplingParams

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def context_option(default: str = "yaml/runtime/inference.yaml, at most the model's own") -> Decorator:
    return click.option(
        "-c", "--ctx-size", "--context", "context", type=click.IntRange(min=1), envvar=["EDGE_CTX_SIZE", "EDGE_CONTEXT"],
        help=f"Tokens of prompt and answer together.  [default: {default}]",
    )  # fmt: skip


def model_option() -> Decorator:
    return click.option(
        "-m", "--model", type=click.Path(path_type=Path), envvar="EDGE_MODEL", help="PACKAGE, in place of the first word."
    )


def package_and_words(words: tuple[str, ...], model: Path | None) -> tuple[Path, tuple[str, ...]]:
    """The package, from `model_option` or the first word, and the words behind it."""
    if model is not None:
        return model, words
    if not words:
        raise click.UsageError("which package? Give its folder, NAME.edge", click.get_current_context())
    return Path(words[0]), words[1:]


def template_option() -> Decorator:
    return click.option(
        "--chat-template-file", type=click.Path(path_type=Path), envvar="EDGE_CHAT_TEMPLATE_FILE",
        help="Use this template in place of the package's own.",
    )  # fmt: skip


def max_tokens_option(default: int) -> Decorator:
    return click.option(
        "-n", "--max-tokens", type=click.IntRange(min=1), default=default, show_default=True, envvar="EDGE_MAX_TOKENS",
        help="Tokens of the answer at most.",
    )  # fmt: skip


def threads_option() -> Decorator:
    return click.option(
        "-t", "--threads", type=click.IntRange(min=1), envvar="EDGE_THREADS",
        help="Threads that compute.  [default: the processors that this process may use]",
    )  # fmt: skip


def isa_option() -> Decorator:
    return click.option(
        "--isa", default="auto", show_default=True, envvar="EDGE_ISA",
        help="Instruction set of the kernels; `edge doctor` shows which there are.",
    )  # fmt: skip


def budget_option() -> Decorator:
    return click.option("--ignore-budget", is_flag=True, help="Go on although the memory plan does not fit.")


def force_package_option() -> Decorator:
    return click.option("--force", is_flag=True, help="Use a package whose verdict failed.")


def json_option() -> Decorator:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def offline_option() -> Decorator:
    return click.option("--offline", is_flag=True, help="Never use the network (also EDGE_OFFLINE=1).")


def tier_option(help_text: str) -> Decorator:
    return click.option("--tier", default="int4", show_default=True, envvar="EDGE_TIER", help=help_text)


def target_option() -> Decorator:
    return click.option(
        "--target", default="cpu", show_default=True, envvar="EDGE_TARGET", help="What the engine is for (yaml/devices)."
    )


def sampling_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--temp --top-k --top-p --min-p --repeat-penalty -s/--seed, as `sampling_params` takes them. Ranges are checked there."""
    for option in reversed(
        (
            click.option("--temp", type=float, default=0.0, show_default=True, envvar="EDGE_TEMP",
                         help="Temperature; 0 takes the best token."),
            click.option("--top-k", type=int, default=0, envvar="EDGE_TOP_K", help="Of the best K tokens; 0 is off."),
            click.option("--top-p", type=float, default=1.0, envvar="EDGE_TOP_P",
                         help="Of the fewest tokens with this share of probability; 1 is off."),
            click.option("--min-p", type=float, default=0.0, envvar="EDGE_MIN_P",
                         help="Of tokens with this share of the best one's probability; 0 is off."),
            click.option("--repeat-penalty", type=float, default=1.0, envvar="EDGE_REPEAT_PENALTY",
                         help="Above 1 makes tokens that were there less likely; 1 is off."),
            click.option("-s", "--seed", type=int, envvar="EDGE_SEED", help="The same seed gives the same answer."),
        )
    ):  # fmt: skip
        command = option(command)
    return command


def sampling_params(
    temp: float, top_k: int, top_p: float, min_p: float, repeat_penalty: float, seed: int | None
) -> SamplingParams:
    """The values of `sampling_options`. RequestError where one is out of range."""
    from edge.sampling import RandomSeed, SamplingParams

    return SamplingParams(
        temperature=temp,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repeat_penalty=repeat_penalty,
        seed=RandomSeed() if seed is None else seed,
    )
