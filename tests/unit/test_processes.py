"""Tests side by side: what is slow to make is made by one process (tests/conftest.py)."""

from __future__ import annotations

import pytest


def test_groups_reach_the_scheduler(request: pytest.FixtureRequest) -> None:
    # Twice they did not and nothing said so: the suite took twice as long, as every process built every package.
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("needs processes that take groups: -n 2 --dist=loadgroup")
    assert request.node.nodeid.endswith(f"@{request.node.path}")
