"""TensorRT-RTX's parser, which is a younger onnx-tensorrt, reads every linear graph that lowering makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from lowered_graphs import lower_tiny
from synthetic import GEMMA, LLAMA, TinyModel

pytestmark = pytest.mark.build
trt = pytest.importorskip("tensorrt_rtx", reason="needs the rtx extra: tensorrt-rtx-cu13")
pytest.importorskip("onnx", reason="needs the build extra: onnx")

MODELS: dict[str, TinyModel | str] = {
    "llama_odd_widths": "llama_odd_widths",
    "scales under 0": replace(LLAMA, type="Q4_0", types={"embed": "Q5_0", "down_proj": "Q5_0"}),
    "int4 table": replace(LLAMA, type="Q4_1"),
    "gemma_published": "gemma_published",
    "gemma_soft_caps": "gemma_soft_caps",
    "gemma in F16": replace(GEMMA, type="F16"),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("tier", ["int4", "int8", "fp16"])
def test_every_linear_graph_is_read(tiny_gguf: Callable[..., Path], tmp_path: Path, name: str, tier: str) -> None:
    _, lowered = lower_tiny(tiny_gguf(MODELS[name]), tier, tmp_path, ("tensorrt-rtx",))
    graph = lowered.graphs[0]
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    assert parser.parse_from_file(str(graph.path)), [parser.get_error(i).desc() for i in range(parser.num_errors)]
    tensors = [network.get_input(i) for i in range(network.num_inputs)]
    tensors += [network.get_output(i) for i in range(network.num_outputs)]
    assert {tensor.name: tuple(tensor.shape) for tensor in tensors} == {t.name: t.shape for t in graph.tensors}
