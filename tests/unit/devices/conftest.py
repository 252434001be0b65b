"""Modules that the tests of devices share."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # so that tests here may say `from fake_board import lay_board`
