"""int8 activations: scales found by the reference, and the graphs that use them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from synthetic import LLAMA

from calibration.tiers import load_tier
from edge.progress import SilentProgress
from engines.portable.export import write_portable
from engines.portable.reader import read_portable
from engines.reference.ort import OrtGraph
from engines.sources.base import open_source
from engines.tensorrt.lower import Lowered, lower_graphs
from engines.tensorrt.observe import input_scales

pytestmark = pytest.mark.build
onnx = pytest.importorskip("onnx", reason="needs the build extra: onnx")
pytest.importorskip("onnxruntime", reason="needs the build extra: onnxruntime (Python 3.11 or newer)")

READERS = ("tensorrt-10.15", "tensorrt-10.15-int8", "tensorrt-10.3-int8")


@pytest.fixture(scope="module")
def source(tiny_gguf: Callable[..., Path]) -> Path:
    return tiny_gguf(LLAMA)


@pytest.fixture(scope="module")
def windows() -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, 150).tolist(), rng.integers(0, 256, 40).tolist()]


@pytest.fixture(scope="module")
def scales(source: Path, windows: list[list[int]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    portable = tmp_path_factory.mktemp("observed") / "tier.onnx"
    write_portable(open_source(source), load_tier("int8"), portable)
    return input_scales(portable, windows, 1, SilentProgress())


@pytest.fixture(scope="module")
def lowered(source: Path, scales: dict[str, float], tmp_path_factory: pytest.TempPathFactory) -> Lowered:
    folder = tmp_path_factory.mktemp("int8")
    write_portable(open_source(source), load_tier("int8"), folder / "half.onnx", dtype="float16", max_context=64)
    (folder / "graphs").mkdir()
    return lower_graphs(folder / "half.onnx", folder / "graphs", READERS, SilentProgress(), scales)


def test_a_scale_is_the_largest_magnitude_over_127(
    source: Path, windows: list[list[int]], scales: dict[str, float], tmp_path: Path
) -> None:
    write_portable(open_source(source), load_tier("int8"), tmp_path / "tier.onnx")
    model = read_portable(tmp_path / "tier.onnx")
    table, weight = model.weight("embed.weight").dequantise(), model.weight("layers.0.attn_norm.weight")
    rows = table[np.array(windows[0] + windows[1])] * np.float32(model.spec.embedding_scale)
    normed = rows / np.sqrt(np.mean(rows**2, axis=1, keepdims=True) + model.spec.norm_epsilon) * weight
    assert scales["/layers.0/attn_norm/RMSNormalization.out"] == pytest.approx(np.abs(normed).max() / 127, rel=1e-5)


def test_every_input_of_a_layer_has_one_scale_and_the_head_none(scales: dict[str, float]) -> None:
    places = ("attn_norm/RMSNormalization", "attn/Reshape", "ffn_norm/RMSNormalization", "ffn/Mul")
    assert set(scales) == {f"/layers.{layer}/{place}.out" for layer in range(LLAMA.layers) for place in places}


def test_products_of_the_layers_read_rounded_inputs(lowered: Lowered) -> None:
    for graph in lowered.graphs:
        model = onnx.load(str(graph.path), load_external_data=False)
        made = {value: node for node in model.graph.node for value in node.output}
        products = [node for node in model.graph.node if node.op_type == "MatMul"]
        assert len(products) == 7 * LLAMA.layers + 1
        rounded = [node for node in products if node.input[0].endswith("/int8/DequantizeLinear.out")]
        assert len(rounded) == (7 * LLAMA.layers if graph.activations == "int8" else 0)
        for node in rounded:
            assert made[made[node.input[0]].input[0]].op_type == "QuantizeLinear"


def test_rounded_inputs_change_the_logits_a_little(lowered: Lowered, source: Path) -> None:
    spec = open_source(source).spec
    ids = np.random.default_rng(1).integers(0, spec.vocab_size, 40).tolist()
    exact, rounded = (
        np.concatenate([rows.copy() for rows in OrtGraph.open(graph.path, spec, threads=1).logits(ids)])
        for graph in lowered.graphs[:2]
    )
    difference = np.abs(rounded - exact).max()
    assert 0 < difference < 0.1 * np.abs(exact).max()
