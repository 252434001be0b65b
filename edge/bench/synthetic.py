"""A CPU engine of random weights, for the speed of a shape. Owns: its plan and the bytes of its weight file.
Needs: contract, shapes. Never: a tokenizer, sense.

Matrices are as the tier int4 has them: int4 in groups of 32 with minima, the embedding (which is the head) int8. Values are
about 1 / sqrt(inputs), so that activations keep the size that those of trained models have.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from edge.bench.shapes import Shape
from edge.contract import ALIGN, STEP, STRIP, WEIGHT_ALIGN
from edge.executors.cpu_plan import PLAN_FILE, WEIGHTS_FILE, CpuPlan, PlanStep, PlanTensor
from edge.progress import Progress
from edge.spec import ModelSpec

_GROUP = 32
_BLOCK_BYTES = 4 << 20  # written at once
_EMBED, _INV_FREQ = "embed.weight", "rope.inv_freq"
# Standard deviation of quants that are drawn evenly, and the middle of those of int4.
_SPREAD = {"int4": 4.61, "int8": 73.9}
_INT4_MIDDLE = 7.5


def synthetic_plan(shape: Shape, spec: ModelSpec) -> CpuPlan:
    """The step list of `shape`, with the tensors where `write_synthetic` puts them."""
    steps = [PlanStep("embed", {"weight0": _EMBED}, {"scale": 1.0})]
    for index in range(len(spec.layers)):
        steps += _layer_steps(shape, spec, index)
    values: dict[str, int | float | str] = {"epsilon": spec.norm_epsilon, "soft_cap": 0.0}
    steps.append(PlanStep("head", {"weight0": _EMBED, "norm": "final_norm.weight"}, values))
    offset, tensors = 0, []
    for name, kind, outputs, inputs in _tensors(shape, spec):
        count = _byte_count(kind, outputs, inputs)
        group = 0 if kind == "fp32" else _GROUP
        tensors.append(PlanTensor(name, kind, outputs, inputs, group, kind == "int4", offset, count))
        offset = _align(offset + count, WEIGHT_ALIGN)
    return CpuPlan(tuple(tensors), tuple(steps))


def write_synthetic(plan: CpuPlan, folder: Path, progress: Progress) -> None:
    """Writes plan.json and weights.bin, a few MB at a time; the same bytes for the same plan."""
    rng = np.random.default_rng(0)
    progress.start("drawing weights", plan.weight_bytes, "bytes")
    with (folder / WEIGHTS_FILE).open("xb") as file:
        for tensor in plan.tensors:
            file.write(bytes(tensor.offset - file.tell()))
            if tensor.kind == "fp32":
                file.write(_vector(tensor).tobytes())
            else:
                _write_matrix(file, tensor, rng)
            progress.advance(tensor.bytes)
    progress.done()
    (folder / PLAN_FILE).write_text(plan.to_json(), encoding="utf-8")


def _layer_steps(shape: Shape, spec: ModelSpec, index: int) -> list[PlanStep]:
    at, epsilon = f"layers.{index}", spec.norm_epsilon
    project = {f"weight{i}": f"{at}.attn.{name}_proj.weight" for i, name in enumerate("qkv")}
    if shape.qkv_bias:
        project["bias"] = f"{at}.attn.qkv.bias"
    attend = {"inv_freq": _INV_FREQ}
    if spec.qk_norm:
        attend |= {f"{name}_norm": f"{at}.attn.{name}_norm.weight" for name in "qk"}
    window = spec.layers[index].window
    group = spec.group_windows.index(window)
    place: dict[str, int | float | str] = {
        "group": group, "group_layer": spec.groups[group].index(index), "window": window, "epsilon": epsilon,
        "scale": spec.attention_scale, "soft_cap": 0.0,
    }  # fmt: skip
    gated = {"weight0": f"{at}.mlp.gate_proj.weight", "weight1": f"{at}.mlp.up_proj.weight", "norm": f"{at}.mlp_norm.weight"}
    return [
        PlanStep("project", {**project, "norm": f"{at}.attn_norm.weight"}, {"epsilon": epsilon}),
        PlanStep("attend", attend, place),
        _add(spec, at, "attn", "o_proj", "attention"),
        PlanStep("gated", gated, {"activation": spec.activation, "epsilon": epsilon}),
        _add(spec, at, "mlp", "down_proj", "feed_forward"),
    ]


def _add(spec: ModelSpec, at: str, part: str, matrix: str, source: str) -> PlanStep:
    tensors = {"weight0": f"{at}.{part}.{matrix}.weight"}
    if spec.post_norms:
        tensors["post_norm"] = f"{at}.{part}_post_norm.weight"
    return PlanStep("add", tensors, {"input": source, "epsilon": spec.norm_epsilon})


def _tensors(shape: Shape, spec: ModelSpec) -> Iterator[tuple[str, str, int, int]]:
    """Name, kind, outputs and inputs of every tensor, in the order in which the steps read them."""
    hidden, wide, dim = spec.hidden_size, spec.intermediate_size, spec.head_dim
    queries, keys = spec.num_heads * dim, spec.num_kv_heads * dim
    yield _EMBED, "int8", spec.vocab_size, hidden
    yield _INV_FREQ, "fp32", dim // 2, 1
    for index in range(len(spec.layers)):
        at = f"layers.{index}"
        yield f"{at}.attn_norm.weight", "fp32", hidden, 1
        for name, outputs in (("q", queries), ("k", keys), ("v", keys)):
            yield f"{at}.attn.{name}_proj.weight", "int4", outputs, hidden
        if shape.qkv_bias:
            yield f"{at}.attn.qkv.bias", "fp32", queries + 2 * keys, 1
        if spec.qk_norm:
            yield f"{at}.attn.q_norm.weight", "fp32", dim, 1
            yield f"{at}.attn.k_norm.weight", "fp32", dim, 1
        yield f"{at}.attn.o_proj.weight", "int4", hidden, queries
        if spec.post_norms:
            yield f"{at}.attn_post_norm.weight", "fp32", hidden, 1
        yield f"{at}.mlp_norm.weight", "fp32", hidden, 1
        yield f"{at}.mlp.gate_proj.weight", "int4", wide, hidden
        yield f"{at}.mlp.up_proj.weight", "int4", wide, hidden
        yield f"{at}.mlp.down_proj.weight", "int4", hidden, wide
        if spec.post_norms:
            yield f"{at}.mlp_post_norm.weight", "fp32", hidden, 1
    yield "final_norm.weight", "fp32", hidden, 1


def _sections(kind: str, inputs: int) -> tuple[int, int]:
    """Bytes of the quants, and of the scales (equally of the minima), of a strip (contract.py, "weights")."""
    padded = _align(inputs, STEP)
    quants = padded * STRIP // (2 if kind == "int4" else 1)
    return _align(quants, ALIGN), _align(padded // _GROUP * STRIP * 2, ALIGN)


def _byte_count(kind: str, outputs: int, inputs: int) -> int:
    if kind == "fp32":
        return 4 * outputs
    quants, halves = _sections(kind, inputs)
    return -(-outputs // STRIP) * (quants + halves * (2 if kind == "int4" else 1))


def _vector(tensor: PlanTensor) -> np.ndarray:
    """Float32: ones for norms, zeros for a bias, the usual frequencies."""
    if tensor.name == _INV_FREQ:
        exponents: np.ndarray = np.arange(tensor.outputs) / tensor.outputs
        return (10000.0**-exponents).astype("<f4")
    return np.full(tensor.outputs, 0.0 if tensor.name.endswith(".bias") else 1.0, "<f4")


def _write_matrix(file: BinaryIO, tensor: PlanTensor, rng: np.random.Generator) -> None:
    quants, halves = _sections(tensor.kind, tensor.inputs)
    strips = -(-tensor.outputs // STRIP)
    strip_bytes = tensor.bytes // strips
    scale = 1 / (_SPREAD[tensor.kind] * np.sqrt(tensor.inputs))
    block = max(1, _BLOCK_BYTES // strip_bytes)
    for begin in range(0, strips, block):
        data = rng.integers(0, 256, (min(block, strips - begin), strip_bytes), np.uint8)
        scales = rng.uniform(0.5 * scale, 1.5 * scale, (len(data), halves // 2)).astype("<f2")
        data[:, quants : quants + halves] = scales.view(np.uint8)
        if tensor.minima:
            data[:, quants + halves :] = (np.float16(-_INT4_MIDDLE) * scales).view(np.uint8)
        file.write(data.tobytes())


def _align(value: int, unit: int) -> int:
    return -(-value // unit) * unit
