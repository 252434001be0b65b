"""Of a build's many phases the slow ones are shown."""

from __future__ import annotations

from engines.tensorrt.job import PhaseDone, PhaseStarted, StepDone
from engines.tensorrt.phases import SLOW_SECONDS, Phases


class Shown:
    """A Progress that writes down what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def start(self, task: str, total: int, unit: str) -> None:
        self.lines.append(f"start {task}, {total} {unit}")

    def advance(self, n: int = 1) -> None:
        self.lines.append(f"advance {n}")

    def done(self) -> None:
        self.lines.append("done")


def test_a_quick_phase_is_not_shown() -> None:
    shown = Shown()
    phases = Phases(shown)
    phases.message(PhaseStarted("Cloning network", 4000), 0.0)
    phases.tick(SLOW_SECONDS / 2)
    phases.message(PhaseDone("Cloning network"), SLOW_SECONDS / 2)
    phases.tick(9.0)
    phases.finish()
    assert shown.lines == []


def test_a_slow_phase_is_shown_with_the_steps_it_has_done() -> None:
    shown = Shown()
    phases = Phases(shown)
    phases.message(PhaseStarted("Timing graph nodes", 8), 0.0)
    phases.message(StepDone("Timing graph nodes"), 0.1)
    phases.message(StepDone("Timing graph nodes"), 0.2)
    phases.tick(SLOW_SECONDS)
    phases.tick(SLOW_SECONDS + 1)
    phases.message(StepDone("Timing graph nodes"), 3.0)
    phases.message(PhaseDone("Timing graph nodes"), 4.0)
    assert shown.lines == ["start builder: timing graph nodes, 8 steps", "advance 2", "advance 1", "done"]


def test_the_innermost_slow_phase_is_shown_and_the_outer_only_when_it_goes_on_by_itself() -> None:
    shown = Shown()
    phases = Phases(shown)
    phases.message(PhaseStarted("Outer", 3), 0.0)
    phases.message(PhaseStarted("Inner", 5), 0.1)
    phases.tick(2.0)
    phases.message(PhaseDone("Inner"), 3.0)
    phases.message(StepDone("Outer"), 3.0)
    phases.tick(3.0 + SLOW_SECONDS / 2)
    assert shown.lines == ["start builder: inner, 5 steps", "advance 0", "done"]
    phases.tick(3.0 + SLOW_SECONDS)
    assert shown.lines[3:] == ["start builder: outer, 3 steps", "advance 1"]


def test_a_phase_of_one_step_has_no_total() -> None:
    shown = Shown()
    phases = Phases(shown)
    phases.message(PhaseStarted("Compiling", 1), 0.0)
    phases.tick(2.0)
    phases.message(StepDone("Compiling"), 3.0)
    phases.finish()
    assert shown.lines == ["start builder: compiling, 0 steps", "advance 0", "done"]


def test_steps_and_ends_of_unknown_phases_change_nothing() -> None:
    shown = Shown()
    phases = Phases(shown)
    phases.message(StepDone("Never begun"), 0.0)
    phases.message(PhaseDone("Never begun"), 0.0)
    phases.tick(9.0)
    assert shown.lines == []
