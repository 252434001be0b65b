"""Processes that measure: however a measurement is left, nothing of it runs on."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from edge.bench.child import run_child

# A child with a child of its own, which writes both numbers and waits.
FAMILY = """
import os, subprocess, sys, time
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
with open(sys.argv[1] + ".partial", "w") as file:
    file.write(f"{os.getpid()} {other.pid}")
os.rename(sys.argv[1] + ".partial", sys.argv[1])
time.sleep(60)
"""


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # a zombie waits for whoever adopted it


def ends_both(numbers: Path, run: Callable[[list[str]], None]) -> bool:
    run([sys.executable, "-c", FAMILY, str(numbers)])
    pids = [int(word) for word in numbers.read_text().split()]
    deadline = time.monotonic() + 10
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return len(pids) == 2 and not any(map(is_running, pids))


def test_a_child_that_takes_too_long_ends_with_all_that_it_started(tmp_path: Path) -> None:
    def run(command: list[str]) -> None:
        assert run_child(command, "", 2.0) == {"error": "took longer than 2 s"}

    assert ends_both(tmp_path / "numbers", run)


def test_an_interrupt_ends_the_child_with_all_that_it_started(tmp_path: Path) -> None:
    numbers = tmp_path / "numbers"

    def interrupt(number: int, frame: FrameType | None) -> None:
        if numbers.exists():
            raise KeyboardInterrupt

    def run(command: list[str]) -> None:
        with pytest.raises(KeyboardInterrupt):
            run_child(command, "", 60.0)

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    try:
        assert ends_both(numbers, run)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def test_a_child_that_reads_nothing_and_says_much_is_heard_to_its_end() -> None:
    talk = "import sys; print('x' * 1000000); print('{\"load_s\": 1}')"
    assert run_child([sys.executable, "-c", talk], "y" * 1000000, 30.0) == {"load_s": 1}


def test_a_line_that_only_looks_like_figures_is_passed_over() -> None:
    talk = "print('{\"load_s\": 1}'); print('{device freed}')"
    assert run_child([sys.executable, "-c", talk], "", 30.0) == {"load_s": 1}
    assert "ended with code 0" in run_child([sys.executable, "-c", "print('{device freed}')"], "", 30.0)["error"]


def test_a_child_has_a_session_of_its_own() -> None:
    say = "import json, os; print(json.dumps({'session': os.getsid(0)}))"
    assert run_child([sys.executable, "-c", say], "", 30.0)["session"] != os.getsid(0)
