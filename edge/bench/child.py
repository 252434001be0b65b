"""A process that measures and prints one JSON line. Owns: the process and all that it starts. Needs: subprocess. Never: what
figures mean.

It has a session of its own, so that Ctrl-C reaches the caller alone, who ends the whole group.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import Any

_LAST_CHARACTERS = 300  # of what a child said, in a message


def run_child(command: Sequence[str], feed: str, seconds: float) -> dict[str, Any]:
    """The last line of what `command` prints that is a JSON object; `feed` is its standard input. {"error": ...} where it
    fails, or takes longer than `seconds`. However this function is left, no process of the group is."""
    try:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return {"error": f"{command[0]} cannot be run ({error.strerror})", "is_missing": True}
    try:
        out, err = child.communicate(feed, seconds)
    except subprocess.TimeoutExpired:
        return {"error": f"took longer than {seconds:.0f} s"}
    finally:
        _end_group(child)
    figures = _last_object(out)
    if child.returncode == 0 and figures is not None:
        return figures
    return {"error": f"{_end_of(child.returncode)}: {_last_words(err or out)}"}


def _last_object(text: str) -> dict[str, Any] | None:
    """The last line that is a JSON object: engines print whatever they like around it, behind it when they end."""
    for line in reversed(text.splitlines()):
        if not line.startswith("{"):
            continue
        try:
            found: dict[str, Any] = json.loads(line)
        except ValueError:
            continue
        return found
    return None


def _end_group(child: subprocess.Popen[str]) -> None:
    with child:  # closes the pipes, and waits
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def _end_of(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by signal {-code}"


def _last_words(text: str) -> str:
    return " ".join(text.split())[-_LAST_CHARACTERS:] or "it said nothing"
