"""Jobs for the stand-in for TensorRT. Owns: the script of a graph, the job that fits it, a build that is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edge.engine_record import EngineProfile, EngineTensor, ShapeRange
from edge.errors import BuildError
from edge.progress import SilentProgress
from engines.tensorrt.builder import build_plan
from engines.tensorrt.job import BuildJob, BuildOutcome

FAKE = Path(__file__).parent / "fake_tensorrt"  # for PYTHONPATH

INPUT = EngineTensor("input_ids", "int64", (1, -1), True)
OUTPUT = EngineTensor("logits", "float16", (1, 1, 9), False)
PROFILE = EngineProfile("prefill", {"input_ids": ShapeRange((1, 1), (1, 8), (1, 16))})


def graph(folder: Path, **script: Any) -> Path:
    """A graph of one free input and one output, 4,000 bytes of int4 weights, that builds in three quick steps."""
    default = {
        "inputs": [["input_ids", "INT64", [1, -1]]],
        "outputs": [["logits", "HALF", [1, -1, 9]]],
        "weights_bytes": 4000,
        "steps": 3,
        "seconds_a_step": 0,
        "end": "plan",
    }
    path = folder / "graph.onnx"
    path.write_text(json.dumps({**default, **script}), encoding="utf-8")
    return path


def job(path: Path, **changes: Any) -> BuildJob:
    """TensorRT, for sm 8.7, as the graph above asks for."""
    fields: dict[str, Any] = {
        "library": "tensorrt",
        "graph": path,
        "plan": path.parent / "model.plan",
        "sm": "8.7",
        "profiles": (PROFILE,),
        "tensors": (INPUT, OUTPUT),
    }
    return BuildJob(**{**fields, **changes})


def build(wanted: BuildJob) -> BuildOutcome:
    """The plan of a job, built by the stand-in."""
    return build_plan(wanted, SilentProgress())


def refusal(wanted: BuildJob) -> str:
    """The message of a build that fails, which leaves nothing but what was there."""
    before = sorted(wanted.plan.parent.iterdir())
    with pytest.raises(BuildError) as caught:
        build(wanted)
    assert sorted(wanted.plan.parent.iterdir()) == before
    message = str(caught.value)
    assert "\n" not in message
    return message
