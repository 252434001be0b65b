"""Sizes of models in yaml/shapes, and the plans and weight files that are made of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge.bench.shapes import Shape, load_shape, shape_names
from edge.bench.synthetic import synthetic_plan, write_synthetic
from edge.errors import ConfigError
from edge.executors.cpu_plan import CpuPlan, shape_numbers
from edge.progress import SilentProgress

SMALL = Shape(
    title="small", source="nowhere", vocab_size=500, hidden_size=80, intermediate_size=200, num_heads=4, num_kv_heads=2,
    head_dim=32, num_layers=3, context_length=512,
)  # fmt: skip
FULL = replace(SMALL, qk_norm=True, post_norms=True, qkv_bias=True, window=16, full_every=3, activation="gelu_tanh")


@pytest.mark.parametrize("name", shape_names())
def test_every_shape_is_a_model(name: str) -> None:
    shape = load_shape(name)
    assert shape.source.startswith("config.json of ")
    plan = synthetic_plan(shape, shape.spec(name))
    assert {step.op for step in plan.steps} == {"embed", "project", "attend", "add", "gated", "head"}


def test_a_shape_of_a_billion_weights_has_so_many() -> None:
    shape = load_shape("llama-3.2-1b")
    plan = synthetic_plan(shape, shape.spec("llama-3.2-1b"))
    assert sum(tensor.outputs * tensor.inputs for tensor in plan.tensors) == pytest.approx(1.236e9, rel=1e-3)


def test_each_layer_that_is_no_full_one_has_the_window() -> None:
    assert [layer.window for layer in FULL.spec("full").layers] == [16, 16, 0]
    assert [layer.window for layer in SMALL.spec("small").layers] == [0, 0, 0]


@pytest.mark.parametrize("shape", [SMALL, FULL])
def test_the_native_core_takes_the_plan_and_the_file(shape: Shape, tmp_path: Path) -> None:
    core = pytest.importorskip("edge._core", reason="needs the native core: pip install .")
    spec = shape.spec("small")
    plan = synthetic_plan(shape, spec)
    write_synthetic(plan, tmp_path, SilentProgress())
    assert CpuPlan.read(tmp_path / "plan.json") == plan
    weights = np.fromfile(tmp_path / "weights.bin", np.uint8)
    assert len(weights) == plan.weight_bytes
    message, where, _ = core.check_plan(weights, plan.tensor_records(), plan.op_records(), shape_numbers(spec))
    assert message == "", f"{message} {where}"
    for tensor in plan.tensors:
        assert tensor.kind == "fp32" or core.tensor_bytes(tensor.record()) == tensor.bytes


def test_products_keep_the_size_of_their_inputs(tmp_path: Path) -> None:
    core = pytest.importorskip("edge._core", reason="needs the native core: pip install .")
    plan = synthetic_plan(SMALL, SMALL.spec("small"))
    write_synthetic(plan, tmp_path, SilentProgress())
    weights = np.fromfile(tmp_path / "weights.bin", np.uint8)
    x = np.random.default_rng(0).normal(size=(50, 80)).astype(np.float32)
    for tensor in plan.tensors:
        if tensor.inputs == 80:
            y = np.empty((50, tensor.outputs), np.float32)
            core.matmul("plain", weights[tensor.offset : tensor.offset + tensor.bytes], tensor.record(), x, y)
            assert 0.8 < y.std() < 1.3, tensor.name


def test_a_file_of_the_user_is_a_shape_too_and_its_mistakes_are_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("title: Mine\nsource: me\nvocab_size: 100\nhidden_size: 64\nintermediate_size: 64\nnum_heads: 2\n"
                    "num_kv_heads: 1\nhead_dim: 32\nnum_layers: 2\ncontext_length: 256\n")  # fmt: skip
    assert load_shape(str(path)).title == "Mine"
    path.write_text(path.read_text().replace("num_heads: 2\nnum_kv_heads: 1", "num_heads: 3\nnum_kv_heads: 2"))
    with pytest.raises(ConfigError, match=r"mine\.yaml:1: Shape: spec\.num_heads: 3 is not a multiple of num_kv_heads 2"):
        load_shape(str(path))
    with pytest.raises(ConfigError, match="no such file"):
        load_shape("nowhere.yaml")
    with pytest.raises(ConfigError, match=r"Did you mean 'llama-3\.2-1b'"):
        load_shape("llama-1b")
