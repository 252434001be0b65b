"""A runtime over a stand-in for tests here, which may also say `from stand_in import make_bench`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from stand_in import Bench, make_bench


@pytest.fixture(scope="session")
def bench_of() -> Callable[..., Bench]:
    return make_bench
