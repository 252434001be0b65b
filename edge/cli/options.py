"""Options that several subcommands share: one spelling, one help. Owns: names, defaults, variables EDGE_<FLAG>. Needs: click.
Never: behaviour.

What chooses (a model, a size, a tier) has a variable, which its help names. What permits or acts (--force, --json) has none:
a forgotten variable must not force anything.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from edge.cli.models import is_package_name
from edge.policies import RAISED_SHARES
from edge.presets import LEVELS, PRESETS, PresetName
from edge.units import parse_bytes

if TYPE_CHECKING:
    from edge.pages.read_budget import ReadBudget
    from edge.sampling import SamplingParams

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
_FORCED = "edge.forced"  # in the meta of a context: whether --force was given


def context_option(default: str = "yaml/runtime/inference.yaml, at most the model's own") -> Decorator:
    return click.option(
        "-c", "--ctx-size", "--context", "context", type=click.IntRange(min=1), envvar=["EDGE_CTX_SIZE", "EDGE_CONTEXT"],
        show_envvar=True, help=f"Tokens of prompt and answer together.  [default: {default}]",
    )  # fmt: skip


def model_option() -> Decorator:
    return click.option(
        "-m", "--model", type=click.Path(path_type=Path), envvar="EDGE_MODEL", show_envvar=True,
        help="PACKAGE, in place of the first word.",
    )  # fmt: skip


def package_and_words(words: tuple[str, ...], model: Path | None, *, takes_text: bool) -> tuple[Path, tuple[str, ...]]:
    """The package (of --model, else the first word, else EDGE_MODEL) and the words behind it.

    Beside EDGE_MODEL the first word of a command that `takes_text` is the package only where it is named like one.
    """
    context = click.get_current_context()
    is_typed = context.get_parameter_source("model") is ParameterSource.COMMANDLINE
    if model is not None and (is_typed or not words or (takes_text and not is_package_name(words[0]))):
        return model, words
    if not words:
        raise click.UsageError("which package? Give its folder, NAME.edge", context)
    return Path(words[0]), words[1:]


def ask_for_context(context: int) -> str:
    """How a user of `context_option` asks for a context of so many tokens."""
    return f"--ctx-size {context}"


def template_option() -> Decorator:
    return click.option(
        "--chat-template-file", type=click.Path(path_type=Path), envvar="EDGE_CHAT_TEMPLATE_FILE",
        show_envvar=True, help="Use this template in place of the package's own.",
    )  # fmt: skip


def max_tokens_option(default: int) -> Decorator:
    return click.option(
        "-n", "--max-tokens", type=click.IntRange(min=1), default=default, show_default=True, envvar="EDGE_MAX_TOKENS",
        show_envvar=True, help="Tokens of the answer at most.",
    )  # fmt: skip


def threads_option() -> Decorator:
    return click.option(
        "-t", "--threads", type=click.IntRange(min=1), envvar="EDGE_THREADS",
        show_envvar=True, help="Threads that compute.  [default: the processors that this process may use]",
    )  # fmt: skip


def rounds_option(default: int) -> Decorator:
    return click.option(
        "--rounds", type=click.IntRange(min=1), default=default, show_default=True, help="Times to measure: best and median."
    )  # fmt: skip


def isa_option() -> Decorator:
    return click.option(
        "--isa", default="auto", show_default=True, envvar="EDGE_ISA",
        show_envvar=True, help="Instruction set of the kernels; `edge doctor` shows which there are.",
    )  # fmt: skip


def _read_preset(context: click.Context, parameter: click.Parameter, value: str | None) -> PresetName | None:
    """A KV preset, or the level of precision that stands for one."""
    if value is None:
        return None
    names: dict[str, PresetName] = {name: name for name in PRESETS}
    names.update({str(level): name for level, name in LEVELS.items()})
    if value not in names:
        raise click.BadParameter(f"{value!r} is not one of {', '.join(PRESETS)}, {', '.join(LEVELS)}.", context, parameter)
    return names[value]


def _read_bytes(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """A size in bytes, with a unit or without."""
    try:
        return None if value is None else parse_bytes(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}.", context, parameter) from None


def kv_preset_option(*more_names: str, more_variables: tuple[str, ...] = ()) -> Decorator:
    return click.option(
        "--kv-preset", *more_names, "kv_preset", callback=_read_preset, metavar="|".join(PRESETS),
        envvar=["EDGE_KV_PRESET", *more_variables], show_envvar=True,
        help="Precision of KV memory behind the last 128 to 255 tokens: exact fp16, safe int8 keys and int4 values, balanced "
        "int4, tight int4 keys and int2 values; or a level: high (exact), medium (safe), low (balanced).  "
        "[default: yaml/runtime/inference.yaml, or the next more exact one that the package has]",
    )  # fmt: skip


def prefix_option() -> Decorator:
    return click.option(
        "--prefix", metavar="NAME", envvar="EDGE_PREFIX", show_envvar=True,
        help="Begin with a text that `edge bake` has put into the package: its pages are there, nothing of it is computed.",
    )  # fmt: skip


def kv_policy_option() -> Decorator:
    return click.option(
        "--kv-policy", type=click.Choice(tuple(RAISED_SHARES)), envvar="EDGE_KV_POLICY", show_envvar=True,
        help="Pages of a text that are kept a step more exact than the preset: none (uniform), those around headings "
        "(anchors), as many anywhere (random, a control), those that the end of the prompt looks at most (attention), these "
        "and headings by halves (combined).  [default: yaml/runtime/inference.yaml]",
    )  # fmt: skip


def kv_budget_option() -> Decorator:
    return click.option(
        "--kv-budget", callback=_read_bytes, metavar="BYTES", envvar="EDGE_KV_BUDGET", show_envvar=True,
        help="All KV memory, like 64MB or 96MiB. Without --ctx-size the context is what this holds.  "
        "[default: what the context needs]",
    )  # fmt: skip


def _read_read_budget(context: click.Context, parameter: click.Parameter, value: str | None) -> ReadBudget | None:
    """`all`, `auto` or tokens."""
    from edge.pages.read_budget import parse_read_budget

    try:
        return None if value is None else parse_read_budget(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}.", context, parameter) from None


def read_budget_option(default: str = "yaml/runtime/inference.yaml") -> Decorator:
    return click.option(
        "--read-budget", callback=_read_read_budget, metavar="all|auto|TOKENS", envvar="EDGE_READ_BUDGET", show_envvar=True,
        help="Of a long text a token of the answer reads the KV pages of so many tokens alone, those that matter most to it; "
        f"auto: a quarter of the text, 1,024 at least. Reads more where that leaves out too much.  [default: {default}]",
    )  # fmt: skip


def budget_option() -> Decorator:
    return click.option("--ignore-budget", is_flag=True, help="Go on although the memory plan does not fit.")


def force_package_option(*, takes_force: bool = True) -> Decorator:
    """--ignore-verdict, and its older spelling --force but where that replaces something."""

    def option(command: Callable[..., Any]) -> Callable[..., Any]:
        if takes_force:
            command = click.option(
                "--force", is_flag=True, hidden=True, is_eager=True, expose_value=False, callback=_note_force
            )(command)  # fmt: skip
        return click.option("--ignore-verdict", is_flag=True, callback=_read_ignore_verdict,
                            help="Use a package, or a KV preset, whose verdict failed.")(command)  # fmt: skip

    return option


def _note_force(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    context.meta[_FORCED] = value


def _read_ignore_verdict(context: click.Context, parameter: click.Parameter, value: bool) -> bool:
    return value or context.meta.get(_FORCED, False)


def json_option() -> Decorator:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def offline_option() -> Decorator:
    return click.option("--offline", is_flag=True, help="Never use the network (also EDGE_OFFLINE=1).")


def tier_option(help_text: str) -> Decorator:
    return click.option(
        "--tier", default="int4", show_default=True, envvar="EDGE_TIER", show_envvar=True, help=help_text
    )  # fmt: skip


def target_option() -> Decorator:
    return click.option(
        "--target", default="cpu", show_default=True, envvar="EDGE_TARGET", show_envvar=True,
        help="What the engine is for (yaml/devices).",
    )  # fmt: skip


def sampling_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--temp --top-k --top-p --min-p --repeat-penalty -s/--seed, as `sampling_params` takes them. Ranges are checked there."""
    for option in reversed(
        (
            click.option("--temp", type=float, default=0.0, show_default=True, envvar="EDGE_TEMP", show_envvar=True,
                         help="Temperature; 0 takes the best token."),
            click.option("--top-k", type=int, default=0, envvar="EDGE_TOP_K", show_envvar=True,
                         help="Of the best K tokens; 0 is off."),
            click.option("--top-p", type=float, default=1.0, envvar="EDGE_TOP_P", show_envvar=True,
                         help="Of the fewest tokens with this share of probability; 1 is off."),
            click.option("--min-p", type=float, default=0.0, envvar="EDGE_MIN_P", show_envvar=True,
                         help="Of tokens with this share of the best one's probability; 0 is off."),
            click.option("--repeat-penalty", type=float, default=1.0, envvar="EDGE_REPEAT_PENALTY", show_envvar=True,
                         help="Above 1 makes tokens that were there less likely; 1 is off."),
            click.option("-s", "--seed", type=int, envvar="EDGE_SEED", show_envvar=True,
                         help="The same seed gives the same answer."),
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
