"""Progress where nobody sees a bar."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from edge.cli import progress
from edge.cli.progress import LineProgress


def test_lines_of_a_long_task_say_how_much_is_done_and_how_long_the_rest_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = {"now": 100.0}
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: clock["now"]))
    lines = LineProgress()
    lines.start("prefilling", 1000, "tokens")
    for _ in range(4):
        clock["now"] += 6.0
        lines.advance(250)
    assert capsys.readouterr().err.splitlines() == [
        "edge: prefilling",
        "edge: prefilling: 20 % of 1000 tokens, about 18 s left",
        "edge: prefilling: 50 % of 1000 tokens, about 12 s left",
        "edge: prefilling: 70 % of 1000 tokens, about 6 s left",
        "edge: prefilling: 100 % of 1000 tokens",
    ]
