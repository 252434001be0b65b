"""plan.json: what is written is read, what does not fit is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge import contract
from edge.errors import PackageError
from edge.executors.cpu_plan import CpuPlan, PlanStep, PlanTensor

PLAN = CpuPlan(
    (
        PlanTensor("embed.weight", "int8", 300, 64, 32, False, 0, 20672),
        PlanTensor("final_norm.weight", "fp32", 64, 1, 0, False, 24576, 256),
    ),
    (
        PlanStep("embed", {"weight0": "embed.weight"}, {"scale": 8.0}),
        PlanStep("head", {"weight0": "embed.weight", "norm": "final_norm.weight"}, {"epsilon": 1e-5, "soft_cap": 0.0}),
    ),
)


def _read_changed(tmp_path: Path, change: Any) -> CpuPlan:
    document = json.loads(PLAN.to_json())
    change(document)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    return CpuPlan.read(path)


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    assert _read_changed(tmp_path, lambda document: None) == PLAN


def test_weight_bytes_end_with_the_last_tensor() -> None:
    assert PLAN.weight_bytes == 24576 + 256


def test_a_table_that_only_embeds_counts_a_row_a_token() -> None:
    embed_only = CpuPlan(PLAN.tensors, (PLAN.steps[0],))
    assert embed_only.weight_bytes_per_token == 20672 // 300 + 256 // 64
    assert PLAN.weight_bytes_per_token == 20672 + 256


def test_op_records_have_the_fields_of_the_contract() -> None:
    fields = len(contract.OP_FIELDS)
    records = np.frombuffer(PLAN.op_records(), dtype=np.int32).reshape(2, fields)
    names = list(contract.OP_FIELDS)
    assert records[0, names.index("code")] == contract.OPS["embed"]
    assert records[1, names.index("norm")] == 1
    assert records[0, names.index("norm")] == contract.NO_TENSOR
    assert records[0].view(np.float32)[names.index("scale")] == 8.0


def test_a_bias_is_read_and_becomes_a_record(tmp_path: Path) -> None:
    step = {"op": "project", "weight0": "embed.weight", "norm": "final_norm.weight", "bias": "final_norm.weight"}
    plan = _read_changed(tmp_path, lambda document: document["steps"].insert(1, step))
    assert plan.steps[1].tensors["bias"] == "final_norm.weight"
    records = np.frombuffer(plan.op_records(), dtype=np.int32).reshape(3, -1)
    assert records[:, list(contract.OP_FIELDS).index("bias")].tolist() == [contract.NO_TENSOR, 1, contract.NO_TENSOR]


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(contract=contract.VERSION + 1),
        lambda d: d.update(contract=contract.VERSION - 1),
        lambda d: d.pop("steps"),
        lambda d: d["tensors"][0].update(kind="int3"),
        lambda d: d["tensors"][0].update(offset=-4096),
        lambda d: d["tensors"][0].update(bytes="many"),
        lambda d: d["tensors"].append(d["tensors"][0]),
        lambda d: d["tensors"].clear(),
        lambda d: d["steps"][0].update(op="dance"),
        lambda d: d["steps"][0].update(weight0="nobody.weight"),
        lambda d: d["steps"][0].update(activation="relu"),
        lambda d: d["steps"][0].update(scale="large"),
        lambda d: d["steps"][0].update(colour=1),
        lambda d: d.update(steps=3),
    ],
)
def test_a_changed_plan_is_refused_with_the_way_out(tmp_path: Path, change: Any) -> None:
    with pytest.raises(PackageError, match=r"plan\.json: .*edge build"):
        _read_changed(tmp_path, change)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"contract": NaN}'])
def test_what_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(PackageError):
        CpuPlan.read(tmp_path / "plan.json")


def test_a_missing_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="cannot be read"):
        CpuPlan.read(tmp_path / "plan.json")
