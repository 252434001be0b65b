"""How long work reports itself. Owns: the protocol. Needs: nothing. Never: a terminal; the command line brings that."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """One task at a time: `start`, any number of `advance`, `done`. An error leaves without `done`."""

    def start(self, task: str, total: int, unit: str) -> None:
        """Begin `task`, a short phrase; `total` in `unit` ("bytes", "tensors", "tokens" ...), 0 where it is not known."""

    def advance(self, n: int = 1) -> None:
        """`n` more units are done."""

    def done(self) -> None:
        """The task is finished."""


class SilentProgress:
    """Shows nothing: for libraries, tests and scripts."""

    def start(self, task: str, total: int, unit: str) -> None:
        pass

    def advance(self, n: int = 1) -> None:
        pass

    def done(self) -> None:
        pass
