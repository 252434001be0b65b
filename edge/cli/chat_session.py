"""A chat in a terminal or a pipe. Owns: the loop, what is printed. Needs: a package, conversation, line editor. Never: the
arguments of the command line (chat.py)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from edge.cli.chat_commands import Leave, is_command, run_command
from edge.cli.conversation import AnswerFigures, ChatSettings, Conversation
from edge.cli.document import context_for, document_context, read_document
from edge.cli.line_editor import LineEditor, PlainEditor, TerminalEditor
from edge.cli.options import ask_for_context
from edge.cli.screen import write_answer
from edge.env import is_colour_off, state_folder
from edge.errors import BudgetError, RequestError
from edge.monitors.memory import process_memory
from edge.units import planned_and_used

if TYPE_CHECKING:
    from edge.pages.read_budget import ReadBudget
    from edge.policies import PolicyName
    from edge.presets import PresetName

HISTORY_NAME = "chat_history"
DIM, RESET = "\x1b[2m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """What the command line asks for. None: the default of the runtime."""

    settings: ChatSettings
    context: int | None = None
    kv_preset: PresetName | None = None
    kv_policy: PolicyName | None = None
    kv_budget: int | None = None  # bytes
    read_budget: ReadBudget | None = None
    file: Path | None = None  # a text in front of the first message
    prefix: str | None = None  # one that is baked
    threads: int | None = None
    isa: str = "auto"
    template_file: Path | None = None  # in place of the package's own
    force: bool = False  # use a package whose verdict failed
    ignore_budget: bool = False


def run_chat(package_path: Path, options: ChatOptions) -> None:
    """Talks to the package until the user leaves. EdgeError where it cannot be opened, or is a base model."""
    from edge.baked.folder import open_baked
    from edge.cli.prefix import chat_prefix, isa_note, prefix_system
    from edge.footprint import open_runtime, package_plan
    from edge.kv_budget import choose_kv
    from edge.package import Package
    from edge.runnable import check_runs_here
    from edge.text.template import ChatTemplate

    package = Package.open(package_path, force=options.force)
    prefix = None if options.prefix is None else open_baked(package.path, options.prefix)
    kv = choose_kv(package, options.kv_preset, options.kv_budget, options.kv_policy, prefix)
    check_runs_here(package, kv.preset)
    tokenizer = package.open_tokenizer()
    template = ChatTemplate.open(package.path / "tokenizer", tokenizer, options.template_file)
    settings, context = options.settings, options.context
    if prefix is not None:
        settings = replace(settings, system=prefix_system(prefix, settings.system or None), document=prefix.header.document)
        size, tokens = f"--prefix {options.prefix}: {len(prefix.token_ids):,} tokens", len(prefix.token_ids)
        context = context_for(package, kv, size, tokens, settings.max_tokens, context)
    elif options.file is not None:
        document = read_document(options.file, partial(tokenizer.check_length, max_context=package.manifest.limits.max_context))
        settings = replace(settings, document=document)
        context = document_context(package, kv, tokenizer, template, settings, options.file, context)
    plan = package_plan(
        package,
        kv,
        context=context,
        threads=options.threads,
        baked_bytes=0 if prefix is None else prefix.header.file_bytes,
        with_zones=options.file is not None,
        with_terminal=_is_terminal(),
    )
    with (
        open_runtime(
            package,
            plan,
            kv,
            ask_for=ask_for_context,
            threads=options.threads,
            isa=options.isa,
            ignore_budget=options.ignore_budget,
            prefixes=() if prefix is None else (prefix,),
            read_budget=options.read_budget,
        ) as runtime,
        closing(runtime.session()) as engine,
    ):
        begins_with = None if prefix is None else chat_prefix(prefix)
        conversation = Conversation(tokenizer, template, engine, runtime.limits.max_context, settings, begins_with, kv.words)
        if prefix is not None and (note := isa_note(prefix, runtime.isa)) is not None:
            _Notes(sys.stderr)(note)
        talk(
            conversation,
            _editor(conversation.check_length),
            sys.stdout,
            sys.stderr,
            planned_bytes=plan.total,
        )


def talk(conversation: Conversation, editor: LineEditor, out: TextIO, notes: TextIO, *, planned_bytes: int) -> None:
    """The loop: answers go to `out`, everything else to `notes`. Ends with the input, or with /bye. KeyboardInterrupt where
    nobody is there who could have meant one answer only."""
    say = _Notes(notes)
    if editor.is_interactive:
        say(f"context {conversation.context:,} tokens, KV {conversation.kv_preset}. /? shows the commands, Ctrl-D leaves")
    while True:
        try:
            entry = editor.read()
            if not entry.strip():
                continue
            if is_command(entry):
                say(run_command(entry, conversation))
                continue
            is_stopped = _answer(conversation, entry, out, can_stop=editor.is_interactive)
            figures, memory = conversation.figures, planned_and_used(planned_bytes, process_memory().peak)
            assert figures is not None, "an answer has figures"
            say(describe(figures, conversation.settings.max_tokens, memory, is_stopped=is_stopped))
        except (EOFError, Leave):
            return
        except (RequestError, BudgetError) as error:
            if not editor.is_interactive:
                raise  # a script learns of it by the exit code
            say(f"edge: {error}")
        except KeyboardInterrupt:
            if not editor.is_interactive:
                raise
            say("Ctrl-D or /bye leaves")


def _answer(conversation: Conversation, entry: str, out: TextIO, *, can_stop: bool) -> bool:
    """Prints one answer as it comes. Where it `can_stop`, Ctrl-C ends the answer and not the chat; whether it did."""
    pieces = conversation.ask(entry)
    is_stopped = False
    try:
        for piece in pieces:
            write_answer(piece, out)
    except KeyboardInterrupt:
        if not can_stop:
            raise
        is_stopped = True
    finally:
        pieces.close()
    write_answer("\n", out)
    return is_stopped


def describe(figures: AnswerFigures, max_tokens: int, memory: str, *, is_stopped: bool) -> str:
    """One line about an answer: how fast, how long, how much memory. What was not measured is left out."""
    pace = figures.pace
    parts = [f"{pace.tokens} tokens"]
    if pace.decode_rate is not None:
        parts.append(f"{pace.decode_rate:.1f} tokens/s")
    if pace.time_to_first_token is not None:
        parts.append(f"first after {pace.time_to_first_token:.2f} s")
    parts.append(f"prompt {figures.prompt_tokens} tokens, {figures.prompt_tokens - figures.reused_tokens} new")
    parts.append(f"memory {memory}")
    if is_stopped:
        parts.append("stopped")
    elif figures.finish_reason == "length":
        is_limit = pace.tokens >= max_tokens
        parts.append(f"cut at max-tokens {max_tokens}" if is_limit else "cut: the context is full")
    return "[" + " | ".join(parts) + "]"


class _Notes:
    """Lines that are not the model's: dim on a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_dim = stream.isatty() and not is_colour_off()

    def __call__(self, text: str) -> None:
        self._stream.write(f"{DIM}{text}{RESET}\n" if self._is_dim else f"{text}\n")
        self._stream.flush()


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _editor(check_length: Callable[[int], None]) -> LineEditor:
    if _is_terminal():
        return TerminalEditor(state_folder() / HISTORY_NAME, _Notes(sys.stderr))
    return PlainEditor(sys.stdin.buffer, check_length)
