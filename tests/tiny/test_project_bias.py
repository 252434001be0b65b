"""The bias of q, k and v in the CPU engine: what it adds, and what it may be."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic import LLAMA, TinyModel

from edge import contract
from edge.errors import PackageError

pytest.importorskip("edge._core", reason="needs the native core: pip install .")
pytest.importorskip("onnxruntime", reason="needs the build extra")

from built_engine import Built, random_ids

from edge.executors.native_core import load_core
from engines.sources.base import open_source

MODEL = replace(LLAMA, layers=1)


def _changed(built: Built, out: Path, bias: np.ndarray, *, zeroed: bool = False, op: str = "project") -> Built:
    """`built` with this bias in its steps `op`, and without the products that it is added to where `zeroed`."""
    shutil.copytree(built.folder, out)
    document = json.loads((out / "plan.json").read_text())
    with (out / "weights.bin").open("r+b") as file:
        offset = -(-file.seek(0, 2) // contract.WEIGHT_ALIGN) * contract.WEIGHT_ALIGN
        file.write(bytes(offset - file.tell()) + bias.astype("<f4").tobytes())
        for tensor in document["tensors"]:
            if zeroed and tensor["name"].endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
                file.seek(tensor["offset"])
                file.write(bytes(tensor["bytes"]))
    record = {"kind": "fp32", "outputs": len(bias), "inputs": 1, "group": 0, "minima": False}
    document["tensors"].append({"name": "bias", **record, "offset": offset, "bytes": 4 * len(bias)})
    for step in document["steps"]:
        if step["op"] == op:
            step["bias"] = "bias"
    (out / "plan.json").write_text(json.dumps(document))
    return Built(out, built.onnx, built.spec)


def test_a_bias_is_added_to_q_k_and_v(build: Callable[[TinyModel, str], Built], tiny_gguf: Callable, tmp_path: Path) -> None:
    built, source = build(MODEL, "fp16"), open_source(tiny_gguf(MODEL))
    ids = [7] * 70  # one token over and over: then its products are a constant, which a bias can stand for
    h = source.read_rows("embed.weight", 7, 8).to_float32()[0].astype(np.float16).astype(np.float32)
    x = h / np.sqrt(np.mean(h * h) + built.spec.norm_epsilon) * source.read("layers.0.attn_norm.weight").to_float32()
    products = np.concatenate([source.read(f"layers.0.attn.{part}_proj.weight").to_float32() @ x for part in "qkv"])
    # k of one token alone changes nothing, as softmax takes all positions alike; turned by its position it does.
    expected = built.logits(ids)
    nothing = _changed(built, tmp_path / "nothing", 0 * products, zeroed=True).logits(ids)
    assert np.abs(nothing - expected).max() > 0.1
    alone = _changed(built, tmp_path / "alone", products, zeroed=True).logits(ids)
    assert np.abs(alone - expected).max() < 0.01
    undone = _changed(built, tmp_path / "undone", -products).logits(ids)
    assert np.abs(undone - nothing).max() < 0.01


@pytest.mark.parametrize("tier", ["fp16", "int8", "int4"])
def test_a_bias_gives_the_same_bits_on_every_instruction_set_and_in_every_chunk(
    build: Callable[[TinyModel, str], Built], tmp_path: Path, tier: str
) -> None:
    built = build(MODEL, tier)
    bias = np.random.default_rng(3).standard_normal(8 * 16).astype(np.float32)
    biased, ids = _changed(built, tmp_path / "biased", bias), random_ids(built.spec)
    expected = biased.logits(ids, isa="plain", threads=1)
    assert not np.array_equal(expected, built.logits(ids))
    for isa in load_core().instruction_sets():
        for chunk in (1, 50, 128):
            assert np.array_equal(biased.logits(ids, isa=isa, threads=2, chunk=chunk), expected), (isa, chunk)
    assert np.array_equal(_changed(built, tmp_path / "zero", 0 * bias).logits(ids), built.logits(ids))


@pytest.mark.parametrize(("size", "op"), [(8 * 16 - 1, "project"), (8 * 16, "gated"), (8 * 16, "attend")])
def test_a_bias_of_another_size_or_step_is_refused(
    build: Callable[[TinyModel, str], Built], tmp_path: Path, size: int, op: str
) -> None:
    changed = _changed(build(MODEL, "fp16"), tmp_path / "wrong", np.zeros(size, np.float32), op=op)
    with pytest.raises(PackageError, match=r"a step does not fit the model's shapes .*edge build"):
        changed.logits([5])
