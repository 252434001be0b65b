"""A finished plan looked into on its device, which a stand-in for TensorRT is here."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from builds import INPUT, OUTPUT, PROFILE, graph, job

from edge.engine_record import EngineProfile, EngineTensor, GraphRecord, ShapeRange
from edge.errors import PackageError
from edge.progress import SilentProgress
from engines.tensorrt.builder import build_plan
from engines.tensorrt.job import Opened
from engines.tensorrt.opened import find_differences, open_plan

RECORD = GraphRecord("engine/graphs/a.onnx", "10.15", "linear", "float16", "ab" * 32, (INPUT, OUTPUT), (PROFILE,))


@pytest.fixture
def plan(fake_board: None, tmp_path: Path) -> Path:
    asked = job(graph(tmp_path))
    build_plan(asked, SilentProgress())
    return asked.plan


def test_a_plan_that_was_built_opens_with_its_tensors_and_profiles(plan: Path) -> None:
    opened = open_plan("tensorrt", plan)
    assert [tensor.name for tensor in opened.tensors] == ["input_ids", "logits"]
    assert opened.profiles == (EngineProfile("0", PROFILE.shapes),)
    assert find_differences(opened, RECORD) == ()


def test_a_plan_that_is_none_is_refused_with_the_reason_of_the_library(plan: Path) -> None:
    plan.write_bytes(b"not a plan")
    with pytest.raises(PackageError, match=r"cannot read it \(magic tag does not match\)\. Build the plan again") as caught:
        open_plan("tensorrt", plan)
    assert "\n" not in str(caught.value)


def test_a_library_that_crashes_on_a_plan_ends_its_own_process_only(plan: Path) -> None:
    plan.write_bytes(b"crash")
    with pytest.raises(PackageError, match=r"TensorRT ended \(SIGSEGV\) while it read this"):
        open_plan("tensorrt", plan)


@pytest.mark.parametrize(
    ("changed", "differing"),
    [
        (dataclasses.replace(INPUT, dtype="int32"), ("input_ids",)),
        (dataclasses.replace(INPUT, shape=(2, -1)), ("input_ids",)),
        (dataclasses.replace(INPUT, name="ids"), ("ids", "input_ids")),
    ],
)
def test_other_inputs_are_named(changed: EngineTensor, differing: tuple[str, ...]) -> None:
    assert find_differences(Opened((changed, OUTPUT), (PROFILE,)), RECORD) == differing


def test_other_profiles_are_named() -> None:
    wider = EngineProfile("prefill", {"input_ids": ShapeRange((1, 1), (1, 8), (1, 32))})
    assert find_differences(Opened((INPUT, OUTPUT), (wider,)), RECORD) == ("profiles",)
    assert find_differences(Opened((INPUT, OUTPUT), (PROFILE, PROFILE)), RECORD) == ("profiles",)


def test_the_names_of_profiles_do_not_count_because_a_plan_has_none() -> None:
    opened = Opened((INPUT, OUTPUT), (EngineProfile("0", PROFILE.shapes),))
    assert find_differences(opened, RECORD) == ()
    assert json.dumps(dataclasses.asdict(opened))
