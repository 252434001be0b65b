"""How a process ended, in words. Owns: what an exit code means. Needs: nothing. Never: processes."""

from __future__ import annotations

import signal


def ending(code: int) -> str:
    """Words for the exit code of a child as `subprocess` gives it: exit code 1, SIGSEGV; signal 40 for one without a name."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:  # a real-time signal
        return f"signal {-code}"
