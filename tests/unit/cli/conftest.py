"""Modules that the tests of the chat share."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "text"))  # so that tests here may say `from tiny_tokenizers import written`
sys.path.insert(0, str(Path(__file__).parent))  # and `from fake_chat import FakeEngine`
