"""Where the lines of a chat come from. Owns: editing keys, the history file, blocks of several lines. Needs: prompt-toolkit,
for a terminal. Never: commands, answers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from edge.text.normalise import decode_text

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import History
    from prompt_toolkit.input import Input
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.output import Output

FENCE = '"""'  # begins and ends a text of several lines
READ_BYTES = 1 << 20  # of a pipe at once
PROMPT, CONTINUATION = ">>> ", "... "


class LineEditor(Protocol):
    """One entry of the user after the other."""

    @property
    def is_interactive(self) -> bool:
        """Whether somebody is there who can correct a mistake."""

    def read(self) -> str:
        """The next entry, of one line or several. EOFError at the end (Ctrl-D), KeyboardInterrupt for Ctrl-C."""


class PlainEditor:
    """Lines from a pipe or a file: no prompt, no editing."""

    is_interactive = False

    def __init__(self, stream: BinaryIO, check_length: Callable[[int], None]) -> None:
        """`check_length` raises where an entry has more bytes than are of use; no more of them is held than it lets pass."""
        self._stream = stream  # bytes: the text is UTF-8 whatever the locale says
        self._check_length = check_length
        self._count = 0

    def read(self) -> str:
        entry = self._line()
        while is_open(entry):
            try:
                entry += "\n" + self._line()
            except EOFError:
                return entry.lstrip().removeprefix(FENCE)  # the pipe ended inside a block: what is there counts
            self._check_length(len(entry))  # characters, of a byte or more each
        return without_fences(entry)

    def _line(self) -> str:
        data = self._stream.readline(READ_BYTES)
        if not data:
            raise EOFError
        while not data.endswith(b"\n") and (more := self._stream.readline(READ_BYTES)):
            data += more
            self._check_length(len(data))
        self._count += 1
        return decode_text(data.rstrip(b"\r\n"), f"line {self._count} of standard input")


class TerminalEditor:
    """Lines from a terminal: history, bracketed paste, Alt-Enter and three quotes for several lines."""

    is_interactive = True

    def __init__(
        self, history_file: Path, warn: Callable[[str], None], source: Input | None = None, screen: Output | None = None
    ) -> None:
        """`source` and `screen` stand in for the terminal in tests."""
        from prompt_toolkit import PromptSession

        self._session: PromptSession[str] = PromptSession(
            message=PROMPT,
            prompt_continuation=CONTINUATION,
            history=_history(history_file, warn),
            key_bindings=_bindings(),
            multiline=True,  # Enter is ours: it ends an entry, unless that is an open block
            enable_open_in_editor=False,
            input=source,
            output=screen,
        )

    def read(self) -> str:
        return without_fences(self._session.prompt())


def is_open(entry: str) -> bool:
    """Whether three quotes were opened at the start and not yet closed."""
    text = entry.lstrip()
    return text.startswith(FENCE) and not (text.rstrip().endswith(FENCE) and len(text.rstrip()) >= 2 * len(FENCE))


def without_fences(entry: str) -> str:
    """The text between three quotes, or the entry itself."""
    text = entry.strip()
    if text.startswith(FENCE) and not is_open(entry):
        return text[len(FENCE) : -len(FENCE)].strip("\n")
    return entry


def _bindings() -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings

    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_open(buffer.text):
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @bindings.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return bindings


def _history(path: Path, warn: Callable[[str], None]) -> History:
    """The history in `path`, which only its owner may read; in memory, with a warning, where that cannot be."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.fchmod(descriptor, 0o600)  # one that an older umask left open to others
        finally:
            os.close(descriptor)
    except OSError as error:
        warn(f"{path}: history is not kept: {error.strerror}. Check the folder's permissions")
        return InMemoryHistory()
    return FileHistory(str(path))
