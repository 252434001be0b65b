"""The chat as a person meets it: in a terminal, and in a pipe."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import select
import signal
import stat
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_tokenizers import parts_of, written
from vocabulary import BYTE_LEVEL, CHATML

from edge.cli.chat_session import describe
from edge.cli.conversation import AnswerFigures
from edge.cli.line_editor import PlainEditor, is_open, without_fences
from edge.errors import RequestError
from edge.pace import Pace
from edge.units import planned_and_used

SCRIPT = Path(__file__).with_name("fake_chat.py")
PATIENCE_S = 30.0  # for a machine that is busy; nothing waits this long when all is well
CTRL_C, CTRL_D, ENTER, ALT_ENTER = "\x03", "\x04", "\r", "\x1b\r"
PASTE, PASTE_END = "\x1b[200~", "\x1b[201~"
FIGURES = " | memory "


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    written(parts_of(BYTE_LEVEL, CHATML), folder)
    return folder


def environment(home: Path, **more: str) -> dict[str, str]:
    paths = os.pathsep.join([str(SCRIPT.parents[3]), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {
        **os.environ,
        "PYTHONPATH": paths,
        "TERM": "xterm",
        "PROMPT_TOOLKIT_NO_CPR": "1",
        "XDG_STATE_HOME": str(home),
        **more,
    }


class Terminal:
    """The chat in a terminal of its own."""

    def __init__(self, folder: Path, home: Path, context: int = 2048, **variables: str) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(folder), str(context), "0.01"],
            stdin=slave, stdout=slave, stderr=slave, env=environment(home, **variables), start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(slave)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def wait_for(self, text: str) -> str:
        """Reads until `text` has come; what came up to there, and forgets it."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.seen:
            ready, _, _ = select.select([self.master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{text!r} did not come: {self.seen!r}"
            try:
                data = os.read(self.master, 65536)
            except OSError:  # the other side is closed
                data = b""
            assert data, f"it ended before {text!r} came: {self.seen!r}"
            self.seen += data.decode("utf-8", "replace")
        before, _, self.seen = self.seen.partition(text)
        return before

    def ask(self, text: str) -> str:
        """Sends a message and waits for the end of its answer."""
        self.wait_for(">>>")
        self.type(text + ENTER)
        return self.wait_for(FIGURES)

    def messages(self, file: Path) -> list[dict[str, str]]:
        self.wait_for(">>>")
        self.type(f"/save {file}{ENTER}")
        self.wait_for("messages saved")
        found: list[dict[str, str]] = json.loads(file.read_text(encoding="utf-8"))["messages"]
        return found

    def leave(self) -> int:
        self.wait_for(">>>")
        self.type(CTRL_D)
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def terminal(folder: Path, tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(folder, tmp_path)
    yield opened
    opened.close()


def test_ctrl_c_stops_the_answer_only_and_ctrl_d_leaves(terminal: Terminal, tmp_path: Path) -> None:
    terminal.wait_for(">>>")
    terminal.type("first" + ENTER)
    terminal.wait_for("answer 0")
    terminal.type(CTRL_C)
    assert "stopped" in terminal.wait_for("]\x1b[0m")
    terminal.wait_for(">>>")
    terminal.type("half a line" + CTRL_C)
    terminal.wait_for("Ctrl-D or /bye leaves")
    first = terminal.messages(tmp_path / "chat.json")
    assert [message["role"] for message in first] == ["user", "assistant"]
    assert first[1]["content"].startswith("answer 0")
    assert len(first[1]["content"]) < 1000, "the rest was never made"
    assert terminal.leave() == 0


def test_pasted_lines_quoted_lines_and_alt_enter_are_one_message(folder: Path, tmp_path: Path) -> None:
    terminal = Terminal(folder, tmp_path, context=10**6)
    for keys in (
        f"{PASTE}def f():\n    return 1\r\n{PASTE_END}",
        f'"""{ENTER}one{ENTER}two{ENTER}"""',
        f"three{ALT_ENTER}four",
    ):
        terminal.wait_for(">>>")
        terminal.type(keys + ENTER)
        terminal.wait_for("answer ")
        terminal.type(CTRL_C)
        terminal.wait_for("stopped")
    said = [message["content"] for message in terminal.messages(tmp_path / "c.json") if message["role"] == "user"]
    assert said == ["def f():\n    return 1\n", "one\ntwo", "three\nfour"]
    assert terminal.leave() == 0
    terminal.close()


def test_commands_and_mistakes_keep_the_chat_open(terminal: Terminal) -> None:
    terminal.wait_for(">>>")
    terminal.type("/sho" + ENTER)
    terminal.wait_for("edge: no command /sho. Did you mean /show?")
    terminal.wait_for(">>>")
    terminal.type("/set max-tokens 5" + ENTER)
    terminal.wait_for("max-tokens = 5")
    answer = terminal.ask("first")
    assert "\x1b[2m[5 tokens | " in answer, "figures are dim"
    figures = terminal.wait_for("]")
    assert "planned 120.0 MB, used " in figures
    assert "cut at max-tokens 5" in figures
    terminal.wait_for(">>>")
    terminal.type("/bye" + ENTER)
    assert terminal.process.wait(PATIENCE_S) == 0


def test_history_is_for_its_owner_only(terminal: Terminal, tmp_path: Path) -> None:
    terminal.wait_for(">>>")
    terminal.type("/show" + ENTER)
    terminal.wait_for("turns")
    assert terminal.leave() == 0
    (file,) = tmp_path.rglob("chat_history")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "/show" in file.read_text(encoding="utf-8")


def test_a_history_that_cannot_be_kept_is_said(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    terminal = Terminal(folder, tmp_path / "file", NO_COLOR="1")
    assert "history is not kept" in terminal.wait_for(">>>")
    terminal.seen = ">>>"
    assert terminal.leave() == 0
    terminal.close()


def test_a_pipe_is_answered_line_by_line(folder: Path, tmp_path: Path) -> None:
    lines = 'first\n\n/set max-tokens 3\n"""\ntwo 日\nlines\n"""\n/save chat.json\n'
    done = subprocess.run([sys.executable, str(SCRIPT), str(folder), "2048", "0"], input=lines.encode(), capture_output=True,
                          env=environment(tmp_path, LC_ALL="C", PYTHONUTF8="0"), cwd=tmp_path, timeout=PATIENCE_S,
                          check=True)  # fmt: skip
    out = done.stdout.decode()
    assert out.splitlines()[1] == "answ"
    assert ">>>" not in out and "\x1b" not in out + done.stderr.decode()
    saved = json.loads((tmp_path / "chat.json").read_text(encoding="utf-8"))["messages"]
    assert [message["content"] for message in saved if message["role"] == "user"] == ["first", "two 日\nlines"]


def test_ctrl_c_ends_a_chat_in_a_pipe(folder: Path, tmp_path: Path) -> None:
    """Nobody is there who could mean one answer only: the lines behind it are not answered."""
    process = subprocess.Popen([sys.executable, str(SCRIPT), str(folder), "10000", "0.01"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(tmp_path))  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b"first\nsecond\n")
    process.stdin.close()
    process.stdin = None
    assert process.stdout.read(8) == b"answer 0"
    process.send_signal(signal.SIGINT)
    rest, notes = process.communicate(timeout=PATIENCE_S)
    assert b"answer 1" not in rest
    assert (process.returncode, notes) == (130, b"")


@pytest.mark.parametrize(
    ("data", "named"), [(b"/nope\n", "no command /nope"), (b"a\n\xe6\xad\n", "line 2 of standard input: byte 0")]
)
def test_a_mistake_in_a_pipe_ends_it(folder: Path, tmp_path: Path, data: bytes, named: str) -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), str(folder), "2048", "0"], input=data, capture_output=True,
                          env=environment(tmp_path), timeout=PATIENCE_S)  # fmt: skip
    assert done.returncode != 0
    assert named in done.stderr.decode()


def test_blocks_of_lines_are_told_from_lines() -> None:
    assert is_open('"""') and is_open('  """a\nb') and not is_open('"""a"""') and not is_open('a """') and is_open('""""')
    assert without_fences('"""\na\n\nb\n"""') == "a\n\nb"
    assert without_fences('"""a"""') == "a"
    assert without_fences('say """x"""') == 'say """x"""'


def test_a_pipe_that_ends_inside_a_block_gives_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b'"""a\r\nb')
    with (tmp_path / "in").open("rb") as stream:
        editor = PlainEditor(stream, lambda size: None)
        assert editor.read() == "a\nb"
        with pytest.raises(EOFError):
            editor.read()


@pytest.mark.parametrize("data", [b"a" * (3 << 20), b'"""\n' + b"abc\n" * 50_000])
def test_a_pipe_is_read_no_further_than_an_entry_may_be_long(data: bytes) -> None:
    def check_length(size: int) -> None:
        if size > 100_000:
            raise RequestError(f"{size} bytes")

    stream = io.BytesIO(data)
    with pytest.raises(RequestError):
        PlainEditor(stream, check_length).read()
    assert stream.tell() <= 100_000 + (2 << 20)
    assert stream.tell() < len(data)


def test_figures_leave_out_what_was_not_measured() -> None:
    figures = AnswerFigures(prompt_tokens=10, pace=Pace(1.0), reused_tokens=4)
    memory = planned_and_used(9_000_000, None)
    assert describe(figures, 9, memory, is_stopped=True) == (
        "[0 tokens | prompt 10 tokens, 6 new | memory planned 9.0 MB | stopped]"
    )
    figures.pace.count(1.5)
    figures.pace.count(2.0)
    figures.finish_reason = "length"
    memory = planned_and_used(9_000_000, 3_000_000)
    assert describe(figures, 9, memory, is_stopped=False) == (
        "[2 tokens | 2.0 tokens/s | first after 0.50 s | prompt 10 tokens, 6 new | memory planned 9.0 MB, used 3.0 MB | "
        "cut: the context is full]"
    )
