"""What parent and worker say to each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from builds import INPUT, OUTPUT, job

from edge.jsons import JsonMismatch
from engines.tensorrt.job import (
    BuildJob,
    Built,
    Failed,
    Message,
    PhaseDone,
    PhaseStarted,
    StepDone,
    partial_path,
    read_message,
    write_message,
)


def test_a_job_is_read_as_it_was_written(tmp_path: Path) -> None:
    for wanted in (
        job(tmp_path / "g.onnx"),
        job(tmp_path / "g.onnx", workspace_bytes=1 << 30, timing_cache=tmp_path / "times"),
    ):
        assert BuildJob.from_json(wanted.to_json()) == wanted
        assert "\n" not in wanted.to_json()


def test_a_job_that_travels_has_absolute_paths() -> None:
    there = BuildJob.from_json(job(Path("folder/g.onnx")).to_json())
    assert there.graph == Path.cwd() / "folder/g.onnx"
    assert there.plan == Path.cwd() / "folder/model.plan"


def test_tensorrt_rtx_keeps_no_times(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="measures nothing"):
        job(tmp_path / "g.onnx", library="tensorrt-rtx", timing_cache=tmp_path / "times")


@pytest.mark.parametrize(
    "message",
    [
        PhaseStarted("Building engine", 6),
        StepDone("Building engine"),
        PhaseDone("Building engine"),
        Built("1.7.1.116", 9, 8, (INPUT, OUTPUT), 7, "a note"),
        Failed("two\nlines", refused=True),
    ],
)
def test_a_message_is_one_line_and_read_as_it_was_written(message: Message) -> None:
    line = write_message(message)
    assert line.count("\n") == 1 and line.endswith("\n")
    assert read_message(line) == message


@pytest.mark.parametrize("line", ["", "[1]", '{"other": {}}', '{"failed": {}}', "Segmentation fault"])
def test_other_lines_are_no_messages(line: str) -> None:
    with pytest.raises(JsonMismatch):
        read_message(line)


def test_a_plan_under_way_lies_hidden_beside_its_place() -> None:
    assert partial_path(Path("engine/model.plan")) == Path("engine/.model.plan.partial")
