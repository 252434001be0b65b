"""The CPU plan: a step list and the tensors of one weight file, as `engine/plan.json` holds them.

Owns: the JSON form and its checks, and the records that the native core takes. Needs: contract. Never: weights.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edge import contract
from edge.errors import PackageError
from edge.jsons import parse_json, read_value
from edge.spec import ModelSpec

PLAN_FILE = "plan.json"
WEIGHTS_FILE = "weights.bin"

_MAX_INT32 = 2**31 - 1
_MAX_BYTES = 1 << 48

_TENSOR_FIELDS = ("weight0", "weight1", "weight2", "bias", "norm", "post_norm", "q_norm", "k_norm", "inv_freq")
_ENUM_FIELDS = {"input": contract.INPUTS, "activation": contract.ACTIVATIONS}
_OP_DTYPE = np.dtype([(name, np.int32 if kind == "int32_t" else np.float32) for name, kind in contract.OP_FIELDS.items()])


@dataclass(frozen=True, slots=True)
class PlanTensor:
    """A tensor of the weight file. Matrices are [outputs, inputs]; vectors are fp32 with inputs = 1."""

    name: str
    kind: str  # contract.WEIGHT_KINDS
    outputs: int
    inputs: int
    group: int  # inputs a scale; 0 for fp32 and fp16
    minima: bool
    offset: int  # bytes in the file
    bytes: int

    def record(self) -> list[int]:
        """The seven numbers that the native core calls a TensorRecord."""
        kind = contract.WEIGHT_KINDS[self.kind]
        return [kind, self.outputs, self.inputs, self.group, int(self.minima), self.offset, self.bytes]


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One step. `tensors` maps a tensor field of contract.OP_FIELDS to a tensor name; `values` holds the other fields."""

    op: str
    tensors: dict[str, str] = field(default_factory=dict)
    values: dict[str, int | float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CpuPlan:
    """What the native executor runs. The packager writes it, the executor and `edge inspect` read it."""

    tensors: tuple[PlanTensor, ...]
    steps: tuple[PlanStep, ...]

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weight file."""
        return max(t.offset + t.bytes for t in self.tensors)

    @property
    def weight_bytes_per_token(self) -> int:
        """Bytes of weights that one decoded token reads: every matrix once, and one row of a table that only embeds."""
        used = {t for step in self.steps if step.op != "embed" for t in step.tensors.values()}
        return sum(t.bytes if t.name in used else t.bytes // t.outputs for t in self.tensors)

    def tensor_records(self) -> np.ndarray:
        """int64 [tensors, 7], in the order of `tensors`."""
        return np.array([t.record() for t in self.tensors], dtype=np.int64).reshape(len(self.tensors), 7)

    def op_records(self) -> bytes:
        """The step list as the native core's Op structs."""
        index = {t.name: i for i, t in enumerate(self.tensors)}
        ops = np.zeros(len(self.steps), dtype=_OP_DTYPE)
        for op, step in zip(ops, self.steps, strict=True):
            op["code"] = contract.OPS[step.op]
            for name in _TENSOR_FIELDS:
                op[name] = index[step.tensors[name]] if name in step.tensors else contract.NO_TENSOR
            for name, value in step.values.items():
                op[name] = _ENUM_FIELDS[name][str(value)] if name in _ENUM_FIELDS else value
        return ops.tobytes()

    def to_json(self) -> str:
        """The text of plan.json: a tensor or a step a line."""
        tensors = [{f: getattr(t, f) for f in PlanTensor.__dataclass_fields__} for t in self.tensors]
        steps = [{"op": s.op, **s.tensors, **s.values} for s in self.steps]
        rows = ["{", f'"contract": {contract.VERSION},', '"tensors": [']
        rows.append(",\n".join(json.dumps(t) for t in tensors))
        rows += ["],", '"steps": [', ",\n".join(json.dumps(s) for s in steps), "]", "}", ""]
        return "\n".join(rows)

    @classmethod
    def read(cls, path: Path) -> CpuPlan:
        """Reads and checks plan.json; whatever is unknown, missing or of a wrong type is a PackageError."""
        try:
            document = parse_json(path.read_text("utf-8"))
        except OSError as error:
            raise PackageError(f"{path}: cannot be read ({error.strerror}). Build the package again: edge build") from None
        except ValueError as error:
            raise PackageError(f"{path}: not JSON ({error}). Build the package again: edge build") from None
        try:
            return _parse(document)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PackageError(f"{path}: not a CPU plan of this contract ({error!r}). Build it again: edge build") from None


def _parse(document: Any) -> CpuPlan:
    if document["contract"] != contract.VERSION:
        raise ValueError(f"contract {document['contract']}, this runtime has {contract.VERSION}")
    tensors = [read_value(row, PlanTensor, f"tensors[{i}]") for i, row in enumerate(document["tensors"])]
    for tensor in tensors:
        small, large = (tensor.outputs, tensor.inputs, tensor.group), (tensor.offset, tensor.bytes)
        if not (0 <= min(small) <= max(small) <= _MAX_INT32 and 0 <= min(large) <= max(large) <= _MAX_BYTES):
            raise ValueError(f"tensor {tensor.name}: a count out of range")
        if tensor.kind not in contract.WEIGHT_KINDS:
            raise ValueError(f"tensor {tensor.name}: unknown kind {tensor.kind}")
    names = {t.name for t in tensors}
    if len(names) != len(tensors) or not tensors:
        raise ValueError("tensor names are missing or repeated")
    steps = []
    for row in document["steps"]:
        step = PlanStep(row["op"], {}, {})
        if step.op not in contract.OPS:
            raise ValueError(f"unknown step {step.op}")
        for key, value in row.items():
            if key in _TENSOR_FIELDS:
                if value not in names:
                    raise ValueError(f"step {step.op}: no tensor {value}")
                step.tensors[key] = value
            elif key in _ENUM_FIELDS:
                if value not in _ENUM_FIELDS[key]:
                    raise ValueError(f"step {step.op}: {key} is {value}")
                step.values[key] = value
            elif key in contract.OP_FIELDS and key != "code":
                whole = contract.OP_FIELDS[key] == "int32_t"
                if type(value) is not int and (whole or type(value) is not float):
                    raise ValueError(f"step {step.op}: {key} is not a number of its kind")
                if abs(value) > _MAX_INT32:
                    raise ValueError(f"step {step.op}: {key} is out of range")
                step.values[key] = value
            elif key != "op":
                raise ValueError(f"step {step.op}: unknown key {key}")
        steps.append(step)
    return CpuPlan(tuple(tensors), tuple(steps))


def shape_numbers(spec: ModelSpec) -> list[int]:
    """The model shape as the native core takes it."""
    return [
        spec.vocab_size,
        spec.hidden_size,
        spec.intermediate_size,
        spec.num_heads,
        spec.num_kv_heads,
        spec.head_dim,
        len(spec.groups),
    ]
