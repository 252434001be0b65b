"""Rows of a comparison, with stand-ins for engines."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from edge.bench.comparison import OURS, Comparison, Contender, compare

FIGURES = {"prefill_tokens_per_s": 100.0, "decode_tokens_per_s": 10.0, "ttft_s": 0.5, "load_s": 0.1, "peak_rss_bytes": 1000}


def stand_in(name: str, code: str, **more: Any) -> Contender:
    return Contender(name, (sys.executable, "-c", code), **more)


def printing(name: str, **changes: float) -> Contender:
    return stand_in(name, f"print({json.dumps(FIGURES | changes)!r})")


def compared(*contenders: Contender, rounds: int = 1) -> Comparison:
    *_, last = compare(contenders, rounds, 512, 64)
    return last


def test_ratios_are_ours_over_theirs() -> None:
    found = compared(printing(OURS), printing("slow", decode_tokens_per_s=4.0, peak_rss_bytes=2000))
    assert found.as_dict()["ours_over_theirs"]["slow"] == {
        "prefill_tokens_per_s": 1.0, "decode_tokens_per_s": 2.5, "peak_rss_bytes": 0.5,
    }  # fmt: skip


def test_contenders_run_in_turn_and_the_best_is_the_fastest_run_and_the_least_memory(tmp_path: Any) -> None:
    log = tmp_path / "log"
    code = f"""
import json
with open({str(log)!r}, "a+") as file:
    file.write("NAME\\n")
    file.seek(0)
    count = len(file.readlines())
print(json.dumps({FIGURES!r} | {{"decode_tokens_per_s": float(count), "peak_rss_bytes": count}}))
"""
    contenders = [stand_in(name, code.replace("NAME", name)) for name in (OURS, "other")]
    found = compared(*contenders, rounds=3)
    assert log.read_text().split() == [OURS, "other"] * 3
    row = found.ours.as_dict()
    assert (row["best"]["decode_tokens_per_s"], row["median"]["decode_tokens_per_s"]) == (5.0, 3.0)
    assert row["best"]["peak_rss_bytes"] == 1


def test_a_job_is_the_standard_input_of_its_child() -> None:
    echo = "import json, sys; print(json.dumps(json.load(sys.stdin)))"
    found = compared(stand_in(OURS, echo, job=FIGURES | {"load_s": 7.0}))
    assert found.ours.best("load_s") == 7.0


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("raise SystemExit('no such model')", "ended with code 1: no such model"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "ended by SIGILL: it said nothing"),
        ("print('not what was asked for')", "ended with code 0: not what was asked for"),
        ("""print('{"error": "RuntimeError: too\\\\nlong"}')""", "RuntimeError: too long"),
    ],
)
def test_a_failure_is_a_row_that_says_so_and_is_not_tried_again(code: str, says: str) -> None:
    found = compared(printing(OURS), stand_in("broken", code, mend="pip install it"), rounds=2)
    row = found.rows[1]
    assert (row.failure, row.mend, row.runs) == (says, "", [])
    assert found.ratio(row, "decode_tokens_per_s") is None
    assert len(found.ours.runs) == 2


def test_a_missing_engine_comes_with_the_command_that_installs_it() -> None:
    missing = stand_in("absent", """print('{"error": "not installed", "is_missing": true}')""", mend="pip install absent")
    nowhere = Contender("nowhere", ("/nowhere/bin/python",), mend="pip install nowhere")
    found = compared(printing(OURS), missing, nowhere)
    assert [row.mend for row in found.rows] == ["", "pip install absent", "pip install nowhere"]
    assert found.rows[2].failure == "/nowhere/bin/python cannot be run (No such file or directory)"


def test_what_cannot_be_run_from_the_start_is_a_row_too() -> None:
    found = compared(printing(OURS), Contender("onnxruntime", failure="exporting needs onnx"))
    assert found.as_dict()["engines"]["onnxruntime"]["failure"] == "exporting needs onnx"
