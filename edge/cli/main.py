"""The command `edge`: its subcommands, and what a user sees when something fails. Owns: exit codes, the one-line error.
Needs: click. Never: heavy imports; `edge --version` must be instant."""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
from types import FrameType
from typing import TextIO

import click

from edge import __version__
from edge.cli.screen import shown
from edge.errors import EdgeError

# name: (module, one line of help). The function in the module is called `command`.
COMMANDS: dict[str, tuple[str, str]] = {
    "pull": ("edge.cli.pull", "Fetch a model of the catalog into the cache folder."),
    "export": ("edge.cli.export", "Write a model as portable ONNX."),
    "build": ("edge.cli.build", "Build a package (NAME.edge) from a model, for one target."),
    "bake": ("edge.cli.bake", "Keep the KV pages of a long text in a package, for chats that begin with it."),
    "chat": ("edge.cli.chat", "Talk to a package."),
    "run": ("edge.cli.run", "Answer one prompt."),
    "inspect": ("edge.cli.inspect", "Show what is in a package."),
    "verify": ("edge.cli.verify", "Check a package: hashes, and engine against reference."),
    "lint": ("edge.cli.lint", "Show the anchors, sections and zones of a text, and the KV memory it takes."),
    "plan": ("edge.cli.plan", "Show the memory that a model will need, before anything is loaded."),
    "bench": ("edge.cli.bench", "Measure a package: tokens/s, GB/s, memory."),
    "doctor": ("edge.cli.doctor", "Show what this machine offers and what is missing."),
}

EXIT_ERROR, EXIT_USAGE, EXIT_INTERRUPT, EXIT_PIPE = 1, 2, 130, 141


class LazyGroup(click.Group):
    """Knows the names and helps of the subcommands, and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_line) for name, (_, help_line) in COMMANDS.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        import difflib

        if args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            raise click.UsageError(f"no command {args[0]!r}." + (f" Did you mean {near[0]!r}?" if near else ""), ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "-v", "--version", message="edge %(version)s")
@click.pass_context
def group(context: click.Context) -> None:
    """Take a language model from its published file to an answer on this machine.

    \b
    edge pull smollm2-135m-instruct
    edge build smollm2-135m-instruct --tier int4 --target cpu
    edge run smollm2-135m-instruct.edge "Why is the sky blue?"
    """
    if context.invoked_subcommand is None:
        # The help, as click gives it, but not as a success: a script that lost its subcommand must not go on.
        click.echo(context.get_help(), err=True)
        context.exit(EXIT_USAGE)


def main(args: list[str] | None = None) -> None:
    """Entry point of the script `edge`. Exits 0, 1 (error), 2 (usage), 130 (Ctrl-C), 141 (reader gone), 129 (SIGHUP) or
    143 (SIGTERM)."""
    # Signals as exceptions: temporary folders are removed, locks returned.
    signal.signal(signal.SIGTERM, _on_terminate)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # a terminal that closes; nohup has it ignored
        signal.signal(signal.SIGHUP, _on_terminate)
    _open_missing_streams()
    for stream in (sys.stdout, sys.stderr):
        _accept_any_text(stream)
    sys.exit(_run(args))


def _run(args: list[str] | None) -> int:
    try:
        # Not group.main(): it turns Ctrl-C and a reader that left into codes and line breaks of its own.
        with group.make_context("edge", sys.argv[1:] if args is None else args) as context:
            code = group.invoke(context)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as done:  # --help, --version
        return done.exit_code
    except click.UsageError as error:
        message = _shown_options(error).format_message() if isinstance(error, click.NoSuchOption) else error.format_message()
        command = error.ctx.command_path if error.ctx else "edge"
        _say(f"{message}{'' if message.endswith(('.', '?')) else '.'} See: {command} --help")
        return EXIT_USAGE
    except click.ClickException as error:
        _say(error.format_message())
        return EXIT_ERROR
    except EdgeError as error:
        _say(str(error))
        return EXIT_ERROR
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPT
    except BrokenPipeError:
        # The reader left (| head): not an error. stdout is pointed away, or the interpreter complains while it closes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE
    except OSError as error:
        place = error.filename or "input or output"
        _say(f"{place}: {error.strerror or error}. Check the path, its permissions and the free space")
        return EXIT_ERROR
    except MemoryError:
        _say("out of memory. See what would fit: edge plan MODEL")
        return EXIT_ERROR


def _say(message: str) -> None:
    """One line, whatever the message holds: a path may hold line breaks and what a terminal obeys."""
    print("edge: " + shown(" ".join(message.splitlines())), file=sys.stderr)


def _shown_options(error: click.NoSuchOption) -> click.NoSuchOption:
    """The error without suggestions that no help shows."""
    params = error.ctx.command.params if error.ctx else []
    hidden = {name for each in params if getattr(each, "hidden", False) for name in each.opts}
    near = [name for name in error.possibilities or () if name not in hidden]
    return click.NoSuchOption(error.option_name, possibilities=near, ctx=error.ctx)


def _on_terminate(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _open_missing_streams() -> None:
    """A stream that the caller closed (`>&-`), which Python gives as None, is one that holds nothing and takes anything.

    In this order each open takes the number of the stream, so that no file of ours becomes the standard output of a library.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 (for as long as the process lives, as the next two)
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def _accept_any_text(stream: TextIO) -> None:
    """What the locale's encoding lacks is escaped, rather than the command dying of it: a letter, or under UTF-8 a byte of a
    file name that is no UTF-8."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
