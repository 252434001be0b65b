"""Each decomposition by itself: the whole graph gives the same numbers in ONNX Runtime before and after it, in float32."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engines.lowering.graph import Graph, read_graph
from engines.portable.export import write_portable
from engines.portable.reader import read_portable
from engines.reference.ort import OrtGraph
from engines.sources.base import open_source
from engines.tensorrt.graph_file import encode_graph
from engines.tensorrt.passes.capped_attention import decompose_capped_attention
from engines.tensorrt.passes.one_sequence import carry_one_sequence
from engines.tensorrt.passes.plain_norms import decompose_norms

pytestmark = pytest.mark.build
pytest.importorskip("onnx", reason="needs the build extra: onnx")
pytest.importorskip("onnxruntime", reason="needs the build extra: onnxruntime (Python 3.11 or newer)")

CONTEXT = 48
Pass = Callable[[Graph], None]


def through(apply: Pass, gguf: Path, folder: Path) -> tuple[np.ndarray, np.ndarray, Counter[str]]:
    """Logits before and after a pass over the portable float32 graph, and the operators that it left."""
    portable = folder / "model.onnx"
    write_portable(open_source(gguf), None, portable, max_context=CONTEXT)
    model, graph = read_portable(portable), read_graph(portable)
    apply(graph)
    pieces = [found.piece for found in model.initializers.values()]
    offsets = {name: found.extent.offset for name, found in model.initializers.items()}
    changed = folder / "changed.onnx"
    changed.write_bytes(encode_graph(graph, pieces, "model.onnx.data", offsets, 24, 12))
    ids = np.random.default_rng(0).integers(0, model.spec.vocab_size, 40).tolist()
    logits = [
        np.concatenate([rows.copy() for rows in OrtGraph.open(path, model.spec, threads=1).logits(ids, chunk=7)])
        for path in (portable, changed)
    ]
    return logits[0], logits[1], Counter(node.op for node in graph.nodes)


@pytest.mark.parametrize("name", ["gemma_soft_caps", "gemma"])
def test_attention_with_a_soft_cap_keeps_its_numbers(tiny_gguf: Callable[..., Path], tmp_path: Path, name: str) -> None:
    before, after, ops = through(decompose_capped_attention, tiny_gguf(name), tmp_path)
    assert np.abs(after - before).max() < 1e-5
    assert bool(ops["Attention"]) == (name == "gemma")  # without a cap it stays


@pytest.mark.parametrize("name", ["gemma_soft_caps", "llama_published"])
def test_norms_keep_their_numbers(tiny_gguf: Callable[..., Path], tmp_path: Path, name: str) -> None:
    before, after, ops = through(decompose_norms, tiny_gguf(name), tmp_path)
    assert np.abs(after - before).max() < 1e-5
    assert not ops["RMSNormalization"] and ops["ReduceMean"]


def test_one_sequence_changes_shapes_only(tiny_gguf: Callable[..., Path], tmp_path: Path) -> None:
    shapes: dict[str, tuple[int | str, ...]] = {}

    def apply(graph: Graph) -> None:
        carry_one_sequence(graph)
        shapes.update({value.name: value.shape for value in (*graph.inputs, *graph.outputs)})

    before, after, _ = through(apply, tiny_gguf("llama"), tmp_path)
    assert np.array_equal(before, after)
    assert shapes["input_ids"] == (1, "S") and shapes["write_indices"] == (1,)
    assert not [name for name, shape in shapes.items() if "B" in shape]
