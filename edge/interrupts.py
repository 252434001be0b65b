"""Ctrl-C that waits for the end of a step. Owns: the SIGINT handler, for moments. Needs: the main thread. Never: swallows."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Ctrl-C inside the block takes effect behind it, so that what the block changes is changed wholly or not at all.

    Python raises KeyboardInterrupt between any two instructions, also between taking an extent and noting it. Only the main
    thread gets it; in others, and where a handler was set from outside Python, the block runs as it is.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield
        return
    pending: list[FrameType | None] = []

    def remember(number: int, frame: FrameType | None) -> None:
        pending.append(frame)

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if pending and callable(before):
            before(signal.SIGINT, pending[0])
        elif pending:
            os.kill(os.getpid(), signal.SIGINT)
