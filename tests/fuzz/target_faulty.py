"""A reader with every kind of fault, to see that none goes unseen. Owns: the faults. Needs: nothing. Never: a real reader."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path
from random import Random

from edge.errors import SourceError

FAULTS = ("bug", "crash", "hang", "memory", "cut")


class FaultyTarget:
    """Most inputs are right, some are refused, and some find a fault."""

    def __init__(self, folder: Path) -> None:
        self._kept: list[bytes] = []

    def make(self, random: Random) -> bytes:
        return random.choice((*FAULTS, *["right"] * 30, *["refused"] * 6)).encode()

    def run(self, data: bytes) -> None:
        match data:
            case b"bug":
                raise KeyError(data)
            case b"crash":
                ctypes.string_at(0)
            case b"hang":
                while True:
                    pass
            case b"memory":
                self._kept.append(bytes(bytearray(b"x") * (64 << 20)))
            case b"cut":  # killed while it says something
                os.write(1, b'{"index": 7, "ki')
                os.kill(os.getpid(), signal.SIGKILL)
            case b"refused":
                raise SourceError("m.gguf: is 'refused'. Give another")
