"""Streams as callers leave them: closed, not UTF-8, a terminal; and the cursor afterwards."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from edge.cli.screen import shown, write_answer
from edge.cli.tables import format_table

HIDE, SHOW = b"\x1b[?25l", b"\x1b[?25h"
BAR = """
import os, signal, sys, time
from edge.cli.main import main
import edge.cli.pull as pull

def work(name, progress, *, offline):
    progress.start("first", 10, "things")
    progress.done()
    progress.start("second", 10, "things")
    progress.advance()
    {ending}

pull.pull_model = work
main(["pull", "x"])
"""


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(command: list[str], words: str, **changes: str) -> subprocess.CompletedProcess[bytes]:
    """The command in a shell, so that `words` may close streams."""
    script = f'"$@" {words}'
    environment = {**os.environ, **changes}
    return subprocess.run(
        ["bash", "-c", script, "bash", *command], capture_output=True, check=False, timeout=60, env=environment
    )


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("os.kill(os.getpid(), signal.SIGINT); time.sleep(30)", 130),
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(30)", 143),
        ("os.kill(os.getpid(), signal.SIGHUP); time.sleep(30)", 129),
        ("raise OSError(28, 'No space left on device', 'x')", 1),
    ],
)
def test_a_bar_that_is_left_early_gives_the_cursor_back(ending: str, code: int) -> None:
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    process = subprocess.Popen([sys.executable, "-c", BAR.format(ending=ending)], stderr=slave, env=environment)
    os.close(slave)
    seen = b""
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:  # the other side is closed
            break
        if not data:
            break
        seen += data
    os.close(master)
    assert process.wait(60) == code
    assert seen.count(HIDE) == seen.count(SHOW) == 2, seen
    assert seen.rindex(SHOW) > seen.rindex(HIDE)


@pytest.mark.parametrize("closed", [">&-", "<&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_error_of_ours(closed: str, edge_command: list[str]) -> None:
    done = run([*edge_command, "pull", "--list"], closed)
    assert (done.returncode, done.stderr) == (0, b"")
    refused = run([*edge_command, "inspect", "/nowhere/x.edge"], closed)
    assert refused.returncode == 1
    assert b"Traceback" not in refused.stderr


def test_a_prompt_from_a_closed_stream_is_empty(edge_command: list[str]) -> None:
    refused = run([*edge_command, "run", "/nowhere/x.edge"], "<&-")
    assert refused.returncode == 1
    assert refused.stderr.count(b"\n") == 1


def test_a_file_name_that_is_no_text_is_printed_escaped(edge_command: list[str], tmp_path: Path) -> None:
    """Under UTF-8 too: Python holds such a byte as a lone surrogate, which no encoding has."""
    done = run([*edge_command, "doctor"], "", EDGE_CACHE=os.fsdecode(bytes(tmp_path) + b"/\xff"), LC_ALL="C.UTF-8")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\udcff" in done.stdout


def test_bare_edge_prints_the_help_and_is_no_success(edge_command: list[str]) -> None:
    bare, asked = run(edge_command, ""), run([*edge_command, "--help"], "")
    assert (bare.returncode, bare.stdout) == (2, b"")
    assert (asked.returncode, asked.stderr) == (0, b"")
    assert bare.stderr == asked.stdout
    assert asked.stdout.count(b"\n") > 15


def test_control_characters_are_shown_on_a_terminal_and_kept_in_a_pipe() -> None:
    text = "a\x1b[2Jb\x07\x9b1m\x7f\tc\nd é 日"
    assert shown(text) == "a␛[2Jb␇�1m␡\tc\nd é 日"
    screen, pipe = Screen(), io.StringIO()
    write_answer(text, screen)
    write_answer(text, pipe)
    assert (screen.getvalue(), pipe.getvalue()) == (shown(text), text)
    assert "\x1b" not in format_table([["name", "\x1b]0;title\x07"]])


def test_an_error_line_holds_nothing_that_a_terminal_obeys(edge_command: list[str]) -> None:
    done = subprocess.run([*edge_command, "inspect", "a\x1b[31m\nb.edge"], capture_output=True, check=False, timeout=60)
    assert done.returncode == 1
    assert b"\x1b" not in done.stderr
    assert done.stderr.count(b"\n") == 1
