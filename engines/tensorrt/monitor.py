"""How a build goes on, as the library tells it. Owns: its progress monitor. Needs: `trt`. Never: time, terminals.

The library asks after each step whether to go on, so this is also where a build is stopped. It calls from threads of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, SupportsInt

from engines.tensorrt.job import Message, PhaseDone, PhaseStarted, StepDone

if TYPE_CHECKING:
    from engines.tensorrt.library import trt


def make_monitor(send: Callable[[Message], None], stop: threading.Event) -> trt.IProgressMonitor:
    """A monitor that sends what it hears, and ends the build at the next step after `stop` is set.

    `send` must not raise: nothing may be thrown through the library.
    """
    from engines.tensorrt.library import trt

    class Monitor(trt.IProgressMonitor):
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str, num_steps: SupportsInt) -> None:
            send(PhaseStarted(phase_name, int(num_steps)))

        def step_complete(self, phase_name: str, step: SupportsInt) -> bool:
            send(StepDone(phase_name))
            return not stop.is_set()

        def phase_finish(self, phase_name: str) -> None:
            send(PhaseDone(phase_name))

    return Monitor()
