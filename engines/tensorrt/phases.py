"""What of a build is shown. Owns: the phases under way. Needs: messages, a clock. Never: the library.

A library reports thousands of phases, nested, most of them over in an instant. Shown is the innermost one once it has gone on
for a while, so that a log gets a line for each slow part and a terminal a bar that moves.
"""

from __future__ import annotations

from dataclasses import dataclass

from edge.progress import Progress
from engines.tensorrt.job import PhaseDone, PhaseStarted, StepDone

SLOW_SECONDS = 1.0


@dataclass(slots=True)
class _Phase:
    name: str
    steps: int
    since: float  # when it began, or the last phase inside it ended
    done: int = 0

    @property
    def total(self) -> int:
        """Steps to show; a phase of one step says nothing by them."""
        return self.steps if self.steps > 1 else 0


class Phases:
    """Follows one build. `message` and `tick` take the time, in seconds from anywhere."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._open: list[_Phase] = []
        self._shown: _Phase | None = None

    def message(self, message: PhaseStarted | StepDone | PhaseDone, now: float) -> None:
        match message:
            case PhaseStarted(name, steps):
                self._open.append(_Phase(name, steps, now))
            case StepDone(name):
                phase = self._find(name)
                if phase is not None:
                    phase.done += 1
                    if phase is self._shown and phase.done <= phase.total:
                        self._progress.advance()
            case PhaseDone(name):
                phase = self._find(name)
                if phase is not None:
                    self._open.remove(phase)
                    if self._open:
                        self._open[-1].since = now
                    if phase is self._shown:
                        self._hide()

    def tick(self, now: float) -> None:
        """Shows what has become slow."""
        phase = self._open[-1] if self._open else None
        if phase is not None and phase is not self._shown and now - phase.since >= SLOW_SECONDS:
            self._hide()
            self._shown = phase
            self._progress.start(f"builder: {phase.name[:1].lower()}{phase.name[1:]}", phase.total, "steps")
            self._progress.advance(min(phase.done, phase.total))

    def finish(self) -> None:
        """The build has ended."""
        self._open.clear()
        self._hide()

    def _find(self, name: str) -> _Phase | None:
        """The innermost phase of that name: names may repeat where phases run side by side."""
        return next((phase for phase in reversed(self._open) if phase.name == name), None)

    def _hide(self) -> None:
        if self._shown is not None:
            self._shown = None
            self._progress.done()
