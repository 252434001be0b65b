"""A worker process, seen from outside: its lines, and every way in which it may end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engines.tensorrt.child import Child

FAR = 60.0  # seconds; a test that takes so long has failed


def child(code: str, grace: float = FAR) -> Child:
    return Child([sys.executable, "-c", code], "the job", grace)


def lines(process: Child) -> list[str]:
    return [line for line in process.lines() if line is not None]


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that ended and was not collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_it_gets_its_job_and_its_lines_are_read() -> None:
    with child("print(input().upper()); print('more'); print('cut', end='')") as process:
        assert lines(process) == ["THE JOB", "more"]
        assert process.exit_code() == 0


def test_the_caller_gets_time_to_look_at_a_clock() -> None:
    with child("import time; time.sleep(1); print('late')") as process:
        found = list(process.lines())
    assert found.count(None) >= 2
    assert found[-1] == "late" or found[-2] == "late"


def test_its_memory_is_watched() -> None:
    with child("data = b'x' * 200_000_000; import time; time.sleep(1)") as process:
        lines(process)
    assert 200_000_000 < process.peak_bytes < 400_000_000


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("import sys; sys.exit(3)", 3),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
    ],
)
def test_its_end_is_told(code: str, exit_code: int) -> None:
    with child(code) as process:
        assert lines(process) == []
        assert process.exit_code() == exit_code


def test_its_last_words_are_the_last_line_of_stderr_that_says_anything() -> None:
    with child("import sys; sys.stderr.write('a' * 100_000 + '\\nthe reason\\n\\n'); print('no')") as process:
        lines(process)
        assert process.last_words() == "the reason"


def test_leaving_ends_its_stdin_and_waits() -> None:
    with child("import sys; input(); print('up', flush=True); sys.stdin.read(); open(sys.argv[1], 'w')") as process:
        pid = process._process.pid
        next(line for line in process.lines() if line is not None)
        assert is_alive(pid)
    assert not is_alive(pid)
    assert process._process.returncode == 1, "no argument: it came as far as opening"


def test_a_child_that_does_not_stop_is_killed() -> None:
    with child("import time; print('up', flush=True); time.sleep(600)", grace=0.2) as process:
        next(line for line in process.lines() if line is not None)
    assert process._process.returncode == -signal.SIGKILL


def test_ctrl_c_reaches_the_caller_alone() -> None:
    with child("import os; print(os.getpgid(0))") as process:
        assert int(lines(process)[0]) != os.getpgid(0), "a terminal sends SIGINT to its foreground group"


CALLER = """
import sys
from engines.tensorrt.child import Child
CODE = "import os, sys; print(os.getpid(), flush=True); input(); sys.stdin.read()"
with Child([sys.executable, "-c", CODE], "job", 60) as child:
    for line in child.lines():
        if line is not None:
            print(line, flush=True)
"""


def test_a_child_whose_caller_is_killed_sees_the_end_of_its_stdin() -> None:
    caller = subprocess.Popen([sys.executable, "-c", CALLER], stdout=subprocess.PIPE, text=True)
    assert caller.stdout is not None
    pid = int(caller.stdout.readline())
    assert is_alive(pid)
    caller.kill()
    caller.wait()
    caller.stdout.close()
    deadline = time.monotonic() + FAR
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(pid)
