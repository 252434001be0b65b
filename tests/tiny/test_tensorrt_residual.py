"""The residual stream carried smaller: the same logits, and no infinity where the stream leaves float16."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from synthetic import TinyModel

from edge.engine_record import LARGEST_FLOAT16
from edge.errors import BuildError
from edge.progress import SilentProgress
from edge.spec import ModelSpec
from engines.lowering.fold_weights import fold_embedding, fold_linears
from engines.lowering.graph import Graph, read_graph
from engines.portable.export import write_portable
from engines.portable.reader import read_portable
from engines.reference.ort import OrtGraph
from engines.sources.base import open_source
from engines.tensorrt.float_range import LargestValue, largest_value
from engines.tensorrt.graph_file import encode_graph
from engines.tensorrt.passes.capped_attention import decompose_capped_attention
from engines.tensorrt.passes.expand_weights import expand_weights
from engines.tensorrt.passes.scaled_residual import SCALE, scale_residual
from engines.tensorrt.weight_forms import weight_form

pytestmark = pytest.mark.build
pytest.importorskip("onnx", reason="needs the build extra: onnx")
pytest.importorskip("onnxruntime", reason="needs the build extra: onnxruntime (Python 3.11 or newer)")

Gguf = Callable[[str | TinyModel], Path]
Pass = Callable[[Graph, ModelSpec], None]


def logits_after(apply: Pass, gguf: Path, folder: Path, dtype: str) -> np.ndarray:
    """Of some tokens, from the portable graph through folding, the pass and expansion."""
    portable, changed = folder / "model.onnx", folder / "changed.onnx"
    if not portable.exists():
        write_portable(open_source(gguf), None, portable, dtype=dtype, max_context=32)
    model, graph = read_portable(portable), read_graph(portable)
    fold_linears(graph)
    fold_embedding(graph)
    apply(graph, model.spec)
    expand_weights(graph, {name: weight_form(model, stored) for name, stored in model.stored.items()})
    pieces = [found.piece for found in model.initializers.values()]
    offsets = {name: found.extent.offset for name, found in model.initializers.items()}
    changed.write_bytes(encode_graph(graph, pieces, "model.onnx.data", offsets, 24, 12))
    ids = np.random.default_rng(0).integers(0, model.spec.vocab_size, 24).tolist()
    return np.concatenate([rows.copy() for rows in OrtGraph.open(changed, model.spec, threads=1).logits(ids, chunk=7)])


def unchanged(graph: Graph, spec: ModelSpec) -> None:
    pass


def louder(graph: Graph, spec: ModelSpec) -> None:
    """A model whose stream is some 20,000 times larger, as the sums of Gemma's layers are; only its norms see it."""
    for node in graph.nodes:
        if node.op == "embed":
            node.attributes["scale"] = 60_000.0


@pytest.mark.parametrize("name", ["gemma", "gemma_soft_caps"])
def test_a_scaled_stream_gives_the_same_logits(tiny_gguf: Gguf, tmp_path: Path, name: str) -> None:
    before = logits_after(unchanged, tiny_gguf(name), tmp_path, "float32")
    after = logits_after(scale_residual, tiny_gguf(name), tmp_path, "float32")
    assert np.abs(after - before).max() < 1e-5


def largest(apply: Pass, gguf: Path, folder: Path) -> LargestValue:
    logits_after(apply, gguf, folder, "float16")
    spec = read_portable(folder / "model.onnx").spec
    found = largest_value(folder / "changed.onnx", spec, [list(range(5, 30))], 1, SilentProgress())
    assert not list(folder.glob("range.onnx"))
    return found


def test_a_stream_that_leaves_float16_stays_inside_when_scaled(tiny_gguf: Gguf, tmp_path: Path) -> None:
    def loud_and_scaled(graph: Graph, spec: ModelSpec) -> None:
        louder(graph, spec)
        scale_residual(graph, spec)

    assert not largest(louder, tiny_gguf("gemma"), tmp_path).fits
    found = largest(loud_and_scaled, tiny_gguf("gemma"), tmp_path)
    assert found.fits and 100 < found.magnitude < LARGEST_FLOAT16


def test_what_leaves_float16_is_found_although_float32_has_room(tiny_gguf: Gguf, tmp_path: Path) -> None:
    logits = logits_after(louder, tiny_gguf("gemma"), tmp_path, "float16")
    found = largest(louder, tiny_gguf("gemma"), tmp_path)
    assert np.isfinite(logits).all() and not found.fits


def test_scores_in_float32_may_be_larger_than_float16_holds(tiny_gguf: Gguf, tmp_path: Path) -> None:
    def loud_scores(graph: Graph, spec: ModelSpec) -> None:
        decompose_capped_attention(graph)
        for name in graph.constants:
            if name.endswith("/cap"):
                graph.constants[name] = np.array(1e6, np.float32)

    assert largest(loud_scores, tiny_gguf("gemma_soft_caps"), tmp_path).fits


def test_a_model_without_norms_behind_its_branches_is_left_alone(tiny_gguf: Gguf, tmp_path: Path) -> None:
    before = logits_after(unchanged, tiny_gguf("llama"), tmp_path, "float32")
    assert np.array_equal(logits_after(scale_residual, tiny_gguf("llama"), tmp_path, "float32"), before)


def test_an_operator_that_reads_the_stream_is_named(tiny_gguf: Gguf, tmp_path: Path) -> None:
    def read_elsewhere(graph: Graph, spec: ModelSpec) -> None:
        norm = next(node for node in graph.nodes if node.op == "RMSNormalization")
        norm.op = "LayerNormalization"
        scale_residual(graph, spec)

    with pytest.raises(BuildError, match=r"\(LayerNormalization\) reads the residual stream"):
        logits_after(read_elsewhere, tiny_gguf("gemma"), tmp_path, "float32")


def test_the_scale_is_a_power_of_two() -> None:
    assert np.log2(SCALE) % 1 == 0
