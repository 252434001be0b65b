"""Ctrl-C that waits for the end of a step. Owns: the SIGINT handler, for moments. Needs: the main thread. Never: swallows."""

from __future__ import annotations

import inspect
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

# Each step of a runtime asks and sets it. The module's own wrappers look handlers up in an enum first, and that a function is
# none of its members costs them an exception: 20 us a token, with cold caches.
_get_handler: Any = inspect.unwrap(signal.getsignal)
_set_handler: Any = inspect.unwrap(signal.signal)
_SIGINT = int(signal.SIGINT)


class deferred_interrupts:
    """Ctrl-C inside the block takes effect behind it, so that what the block changes is changed wholly or not at all.

    Python raises KeyboardInterrupt between any two instructions, also between taking an extent and noting it. Only the main
    thread gets it; in others, and where a handler was set from outside Python, the block runs as it is.
    """

    __slots__ = ("_before", "_frames")

    def __enter__(self) -> None:
        self._frames: list[FrameType | None] = []
        is_main = threading.get_ident() == threading.main_thread().ident
        self._before = _get_handler(_SIGINT) if is_main else None
        if self._before is not None:
            _set_handler(_SIGINT, self._remember)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._before is None:
            return
        _set_handler(_SIGINT, self._before)
        if self._frames and callable(self._before):
            self._before(_SIGINT, self._frames[0])
        elif self._frames:
            os.kill(os.getpid(), _SIGINT)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self._frames.append(frame)
