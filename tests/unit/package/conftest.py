"""Modules that the tests of packages share."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).parents[1] / "gpu")
)  # so that tests here may say `from stand_in_driver import compile_driver`
sys.path.insert(0, str(Path(__file__).parent))  # and `from engine_packages import write_rtx`
