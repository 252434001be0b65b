"""Which code was measured. Owns: the question to git. Needs: git, where there is one. Never: an error."""

from __future__ import annotations

import subprocess
from pathlib import Path

import edge


def code_commit() -> str | None:
    """The commit of the checkout that this code runs from, or is installed inside of; None elsewhere."""
    command = ["git", "-C", str(Path(edge.__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
