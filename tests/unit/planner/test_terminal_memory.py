"""What a chat in a terminal takes beside one in a pipe."""

from __future__ import annotations

import subprocess
import sys

from edge.footprint import _TERMINAL_BYTES

CODE = """
from edge.cli import chat_session
from edge.monitors.memory import process_memory
from edge.cli.line_editor import TerminalEditor
from pathlib import Path
import tempfile
before = process_memory().resident
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
with create_pipe_input() as keys:
    keys.send_text("hello\\r")
    TerminalEditor(Path(tempfile.mkdtemp()) / "history", print, keys, DummyOutput()).read()
print(process_memory().resident - before)
"""


def test_the_plan_counts_what_edits_lines() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, timeout=120)
    assert 0.6 * _TERMINAL_BYTES < int(done.stdout) < 1.3 * _TERMINAL_BYTES
