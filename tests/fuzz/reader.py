"""A reader under fuzz, and the judgement of one input. Owns: Reader, Target, judge. Needs: edge.errors. Never: processes.

Right is a result, or one of the documented errors whose message is a single printable line. Anything else is a failure.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol

from edge.errors import EdgeError

LONGEST_LINE = 1000  # characters of a message, the place of a file included
_VARIABLE = re.compile(r"'[^']*'|\"[^\"]*\"|[\d,.]+")  # what differs between two messages of a kind


class Target(Protocol):
    """One reader with its seeds. What is made depends on `random` alone, so a number stands for an input."""

    def make(self, random: Random) -> bytes:
        """An input, most often a damaged seed."""

    def run(self, data: bytes) -> None:
        """Reads it and uses what was read. Raises what the reader raises."""


@dataclass(frozen=True, slots=True)
class Reader:
    """What is run, and what it may do."""

    name: str
    open: Callable[[Path], Target]  # its scratch folder, on a file system in memory where there is one
    errors: tuple[type[EdgeError], ...]  # the documented ones
    share: int  # of the inputs of a campaign, relative to the others: what is quick gets more
    cpu_seconds: int = 5  # for one input
    megabytes: int = 192  # resident, beyond what the process has before the first input
    needs_build: bool = False  # the build extra


@dataclass(frozen=True, slots=True)
class Accepted:
    """The input was read."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A documented error."""

    kind: str  # its message without what is particular to the input


@dataclass(frozen=True, slots=True)
class Failed:
    """Something else."""

    kind: str  # the error and where it was raised: equal for failures of one cause
    detail: str


def judge(target: Target, errors: tuple[type[EdgeError], ...], data: bytes) -> Accepted | Refused | Failed:
    """Runs `target` on one input."""
    try:
        target.run(data)
    except errors as error:
        line = str(error)
        if not line.isprintable() or len(line) > LONGEST_LINE:
            return _failed(error, f"a message that is no single short line: {line[:2000]!r}")
        return Refused(f"{type(error).__name__}: {_VARIABLE.sub('#', line.split(': ', 1)[-1])}"[:120])
    except BaseException as error:  # PanicException of a Rust library is no Exception
        return _failed(error, "".join(traceback.format_exception(error)))
    return Accepted()


def _failed(error: BaseException, detail: str) -> Failed:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return Failed(f"{type(error).__name__} at {Path(frame.filename).name}:{frame.name}", detail)
