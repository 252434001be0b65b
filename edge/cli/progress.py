"""Progress on stderr: a bar on a terminal, plain lines elsewhere. Owns: how long work looks. Needs: rich, on a terminal.
Never: stdout, which belongs to the answer."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from edge import env
from edge.interrupts import deferred_interrupts
from edge.progress import Progress
from edge.units import human_bytes, human_seconds

if TYPE_CHECKING:
    import rich.progress

_QUIET_SECONDS = 5.0  # between two plain lines of one task
_QUIET_BYTES = 32 << 20  # a task over fewer bytes is said only when it takes longer than that


@contextmanager
def terminal_progress() -> Iterator[Progress]:
    """What fits the stream that stderr is. A bar is gone and the cursor back behind the block, however it ends."""
    if not sys.stderr.isatty():
        yield LineProgress()
        return
    bar = BarProgress()
    try:
        yield bar
    finally:
        with deferred_interrupts():
            bar.done()


class LineProgress:
    """A line when a task starts and one at each tenth of a long one, with the time left: a log shows where the time went."""

    def __init__(self) -> None:
        self._task, self._total, self._unit = "", 0, ""
        self._count = self._tenth = 0
        self._started = self._next = 0.0

    def start(self, task: str, total: int, unit: str) -> None:
        self._task, self._total, self._unit = task, total, unit
        self._count = self._tenth = 0
        self._started = time.monotonic()
        self._next = self._started + _QUIET_SECONDS
        if unit != "bytes" or total == 0 or total > _QUIET_BYTES:
            self._say(task)

    def advance(self, n: int = 1) -> None:
        self._count += n
        tenth = 10 * self._count // self._total if self._total else 0
        if tenth > self._tenth and (now := time.monotonic()) >= self._next:
            self._next, self._tenth = now + _QUIET_SECONDS, tenth
            left = (now - self._started) * (self._total - self._count) / self._count
            rest = f", about {human_seconds(left)} left" if left > 0 else ""
            self._say(f"{self._task}: {10 * tenth} % of {in_units(self._total, self._unit)}{rest}")

    def done(self) -> None:
        pass

    @staticmethod
    def _say(line: str) -> None:
        print(f"edge: {line}", file=sys.stderr, flush=True)


class BarProgress:
    """A bar with rate and time left, which goes away when the task is done."""

    def __init__(self) -> None:
        self._bar: rich.progress.Progress | None = None
        self._task: rich.progress.TaskID | None = None

    def start(self, task: str, total: int, unit: str) -> None:
        import rich.console
        import rich.progress

        self.done()
        columns: list[rich.progress.ProgressColumn] = [
            rich.progress.SpinnerColumn(),
            rich.progress.TextColumn("{task.description}"),
        ]
        if total:
            count = rich.progress.DownloadColumn() if unit == "bytes" else rich.progress.MofNCompleteColumn()
            columns += [rich.progress.BarColumn(), count, rich.progress.TimeRemainingColumn()]
        columns.append(rich.progress.TimeElapsedColumn())
        console = rich.console.Console(stderr=True, no_color=env.is_colour_off())
        self._bar = rich.progress.Progress(*columns, console=console, transient=True)
        self._task = self._bar.add_task(task, total=total or None)
        self._bar.start()

    def advance(self, n: int = 1) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, n)

    def done(self) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._bar = None


def in_units(count: int, unit: str) -> str:
    """`98.4 MB` for bytes, `30 tensors` for the rest."""
    if unit != "bytes":
        return f"{count} {unit}".strip()
    return human_bytes(count)
