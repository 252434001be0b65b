"""A worker process, seen from outside. Owns: the process, its lines, its end. Needs: a command. Never: what the lines mean."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from edge.monitors.memory import process_memory

_TICK_SECONDS = 0.25
_READ_BYTES = 1 << 16
_EXIT_SECONDS = 10.0  # from the end of stdout to the end of the process


class Child:
    """Runs `command` with `first_line` on its stdin, which stays open. Use it in a `with`, which ends the process.

    The end of its stdin asks it to stop. After `grace_seconds`, or when the user presses Ctrl-C again, it is killed.
    """

    def __init__(self, command: list[str], first_line: str, grace_seconds: float) -> None:
        self.peak_bytes = 0  # of its resident memory, as last seen
        self._grace_seconds = grace_seconds
        # In memory: what a library prints there is little, and a disk may be full.
        self._stderr = os.memfd_create("stderr")
        # A session of its own: Ctrl-C in a terminal is for this process, which then lets the child end in order.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, bufsize=0, start_new_session=True
        )
        with suppress(BrokenPipeError):  # it is dead already, and `lines` will end at once
            _opened(self._process.stdin).write(first_line.encode() + b"\n")

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *reason: object) -> None:
        try:
            for pipe in (self._process.stdin, self._process.stdout):
                _opened(pipe).close()
            self._process.wait(self._grace_seconds)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            self._process.kill()
            self._process.wait()
        finally:
            os.close(self._stderr)

    def lines(self) -> Iterator[str | None]:
        """Lines of its stdout until that ends; None a few times a second, so that the caller can look at a clock."""
        pipe, rest, next_tick = _opened(self._process.stdout), b"", 0.0
        while True:
            ready, _, _ = select.select([pipe], [], [], _TICK_SECONDS)
            if time.monotonic() >= next_tick:
                next_tick = time.monotonic() + _TICK_SECONDS
                self._look_at_memory()
                yield None
            if not ready:
                continue
            data = os.read(pipe.fileno(), _READ_BYTES)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                yield line.decode(errors="replace")

    def exit_code(self) -> int:
        """How it ended, once its lines have: negative for a signal. What holds on after its last line is killed."""
        try:
            return self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def last_words(self) -> str:
        """The last line of its stderr that says anything."""
        text = os.pread(self._stderr, _READ_BYTES, max(0, os.fstat(self._stderr).st_size - _READ_BYTES))
        lines = [line.strip() for line in text.decode(errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line), "")

    def _look_at_memory(self) -> None:
        with suppress(OSError):  # it has ended
            self.peak_bytes = process_memory(Path(f"/proc/{self._process.pid}/status")).peak or self.peak_bytes


def _opened(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None, "opened by Popen"
    return pipe
