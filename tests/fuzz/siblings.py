"""Folders of other tests whose models and packages are the seeds here. Owns: the way to import them. Needs: nothing."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def add_siblings() -> None:
    """`from synthetic import LLAMA`, `from engine_packages import manifest_of` and so on work from here on."""
    for folder in ("tiny", "unit/package", "unit/text"):
        if (path := str(TESTS / folder)) not in sys.path:
            sys.path.append(path)
