"""Modules and fixtures that the tests of install.sh share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # so that tests here may say `from fake_machine import FakeMachine`

from fake_machine import FakeMachine


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    """A plain x86-64 machine with Python 3.11 and a compiler, and a checkout with nothing built."""
    return FakeMachine(tmp_path)
