"""`edge run`: one prompt, one answer. The answer goes to stdout as it is made, figures to stderr.

Whatever is imported here is waited for by everyone who asks something: no rich, no prompt toolkit.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge.cli.options import (
    ask_for_context,
    budget_option,
    context_option,
    force_package_option,
    isa_option,
    json_option,
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
from edge.cli.run_prompt import ids_behind, prompt_ids, read_prompt
from edge.cli.screen import write_answer
from edge.monitors.memory import process_memory
from edge.text.normalise import prompt_text
from edge.units import planned_and_used

if TYPE_CHECKING:
    from edge.pages.read_budget import ReadBudget
    from edge.planner import MemoryPlan
    from edge.policies import PolicyName
    from edge.presets import PresetName
    from edge.request import Request
    from edge.runtime import Runtime
    from edge.sampling import SamplingParams
    from edge.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a prompt."""

    text: str
    finish_reason: str  # stop (also by a stop string) or length
    request: Request


@click.command(name="run")
@click.argument("words", nargs=-1, metavar="PACKAGE [PROMPT]")
@model_option()
@click.option("--system", help="A system message in front of the prompt, for models with a chat template.")
@click.option("--raw", is_flag=True, help="Complete the prompt as plain text, without the chat template.")
@prefix_option()
@template_option()
@click.option("--stop", "stops", multiple=True, help="End the answer in front of this text; may be given several times.")
@max_tokens_option(512)
@context_option("as much as the prompt and --max-tokens need")
@kv_preset_option()
@kv_policy_option()
@kv_budget_option()
@read_budget_option()
@sampling_options
@threads_option()
@isa_option()
@budget_option()
@force_package_option()
@json_option()
def command(
    words: tuple[str, ...],
    model: Path | None,
    system: str | None,
    raw: bool,
    prefix: str | None,
    chat_template_file: Path | None,
    stops: tuple[str, ...],
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
    as_json: bool,
) -> None:  # fmt: skip
    """Answer PROMPT with PACKAGE (NAME.edge). `-`, or no PROMPT and a pipe, reads it from standard input.

    A model with a chat template gets the prompt as a user's message, any other as text to go on with.
    """
    sampling = sampling_params(temp, top_k, top_p, min_p, repeat_penalty, seed)
    stops = tuple(prompt_text(stop, "--stop") for stop in stops)
    # An empty system message is one too: templates have a text of their own where there is none.
    system = system and prompt_text(system, "--system")
    path, prompt_words = _split(words, model)
    if raw and prefix is not None:
        raise click.UsageError("--raw and --prefix: a prefix begins a chat. Leave one out", click.get_current_context())
    from edge.baked.folder import open_baked
    from edge.cli.kv_figures import kv_figures, kv_words
    from edge.cli.prefix import isa_note
    from edge.config import InferenceConfig
    from edge.footprint import check_prompt_budget, open_runtime, package_plan
    from edge.kv_budget import answer_cut, choose_kv
    from edge.package import Package
    from edge.runnable import check_runs_here

    package = Package.open(path, force=ignore_verdict)
    baked = None if prefix is None else open_baked(package.path, prefix)
    kv = choose_kv(package, kv_preset, kv_budget, kv_policy, baked)
    check_runs_here(package, kv.preset)
    tokenizer = package.open_tokenizer()
    longest = package.manifest.limits.max_context
    check_length = partial(tokenizer.check_length, max_context=context or longest)
    prompt = read_prompt(prompt_words, check_length)
    check_length(len(f"{system or ''}{prompt}".encode()))
    zones = b""  # of a baked prefix no page is raised or demoted, and what stands behind it is a question
    if baked is None:
        ids, zones = prompt_ids(package, tokenizer, prompt, system=system, raw=raw, template_file=chat_template_file)
    else:
        ids = ids_behind(baked, package, tokenizer, prompt, system=system, template_file=chat_template_file)
    if context is None:  # one question: as much as it can need, rather than the room of a conversation
        held = check_prompt_budget(package, kv, f"the prompt of {len(ids):,} tokens", len(ids))
        context = min(len(ids) + max_tokens, held)
        if (cut := answer_cut(package.spec, kv, len(ids), max_tokens, held, InferenceConfig.load(), longest)) is not None:
            click.echo(f"edge: {cut}", err=True)
    plan = package_plan(
        package,
        kv,
        context=context,
        threads=threads,
        baked_bytes=0 if baked is None else baked.header.file_bytes,
        with_zones=bool(zones),
    )
    with open_runtime(
        package,
        plan,
        kv,
        ask_for=ask_for_context,
        threads=threads,
        isa=isa,
        ignore_budget=ignore_budget,
        prefixes=() if baked is None else (baked,),
        read_budget=read_budget,
    ) as runtime:
        if baked is not None and (note := isa_note(baked, runtime.isa)) is not None:
            click.echo(note, err=True)
        answer = _answer(runtime, tokenizer, ids, zones, sampling, max_tokens, stops, show=not as_json)
        if as_json:
            row = _record(answer, plan) | kv_figures(runtime, kv)
            click.echo(json.dumps(row))  # ASCII alone, which every locale has
        else:
            click.echo(_figures(answer, plan, kv_words(runtime, kv)), err=True)


def _split(words: tuple[str, ...], model: Path | None) -> tuple[Path, tuple[str, ...]]:
    """The package and the words of the prompt; none: it comes from standard input."""
    path, rest = package_and_words(words, model, takes_text=True)
    if not rest and sys.stdin.isatty():
        raise click.UsageError("no prompt. Give one, or feed it through a pipe", click.get_current_context())
    return path, () if rest == ("-",) else rest


def _answer(
    runtime: Runtime,
    tokenizer: Tokenizer,
    ids: list[int],
    zones: bytes,
    sampling: SamplingParams,
    max_tokens: int,
    stops: tuple[str, ...],
    *,
    show: bool,
) -> Answer:
    """Runs one request; with `show` its text is written to stdout as it becomes certain."""
    from edge.text.stops import StopMatcher

    stream, matcher = tokenizer.stream(), StopMatcher(stops)
    pieces: list[str] = []

    def emit(text: str) -> None:
        pieces.append(text)
        if show and text:
            write_answer(text, sys.stdout)

    request = runtime.submit(ids, sampling, max_tokens, tokenizer.eos_ids, zones=zones)
    reason: str | None = None
    try:
        for event in runtime.events(request):
            if event.finish_reason is not None:
                reason = event.finish_reason
            if event.token_id is None or reason == "stop":
                continue
            emission = matcher.push(stream.push(event.token_id))
            emit(emission.text)
            if emission.stopped:
                reason = "stop"
                break
        else:
            emission = matcher.push(stream.finish())
            emit(emission.text + matcher.finish())
    finally:  # also behind an answer that Ctrl-C cut: the shell's prompt stands on a line of its own
        if show and any(pieces):
            sys.stdout.write("\n")
            sys.stdout.flush()
    assert reason is not None, "events end with a reason"
    return Answer("".join(pieces), reason, request)


def _record(answer: Answer, plan: MemoryPlan) -> dict[str, object]:
    request, ttft = answer.request, answer.request.pace.time_to_first_token
    return {
        "text": answer.text,
        "finish_reason": answer.finish_reason,
        "prompt_tokens": request.prompt_tokens,
        "reused_tokens": request.reused_tokens,
        "answer_tokens": len(request.token_ids),
        "seed": request.sampling.seed if request.sampling.temperature > 0 else None,
        "ttft_s": ttft,
        "prefill_tokens_per_s": request.prompt_tokens / ttft if ttft else None,
        "decode_tokens_per_s": request.pace.decode_rate,
        "planned_bytes": plan.total,
        "peak_rss_bytes": process_memory().peak,
    }


def _figures(answer: Answer, plan: MemoryPlan, kv_memory: str) -> str:
    """One line: tokens, times, KV memory, memory as planned and as used."""
    request, pace = answer.request, answer.request.pace
    parts = [f"{request.prompt_tokens} + {len(request.token_ids)} tokens"]
    if pace.time_to_first_token is not None:
        parts.append(f"first after {pace.time_to_first_token:.3f} s")
    if pace.decode_rate is not None:
        parts.append(f"{pace.decode_rate:.1f} tokens/s")
    if answer.finish_reason == "length":
        parts.append(f"cut at {len(request.token_ids)} tokens")
    parts.append(kv_memory)
    parts.append(f"memory {planned_and_used(plan.total, process_memory().peak)}")
    return f"[{' | '.join(parts)}]"
