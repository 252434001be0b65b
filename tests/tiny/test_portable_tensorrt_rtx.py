"""TensorRT-RTX builds the float16 portable graph as it is, on a machine without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic import GEMMA, LLAMA

from calibration.tiers import load_tier
from engines.portable.export import write_portable
from engines.sources.base import open_source

pytestmark = pytest.mark.build
trt = pytest.importorskip("tensorrt_rtx", reason="needs the rtx extra: tensorrt-rtx-cu13")
pytest.importorskip("onnx", reason="needs the build extra: onnx")

MODELS = {
    "llama with a tied table": replace(LLAMA, type="Q4_1", types={"embed": "Q8_0"}),
    "llama with padded widths": replace(LLAMA, hidden=48, feed_forward=72, heads=3, kv_heads=1, tied=False),
    "gemma with windows": GEMMA,
}


def built_bytes(path: Path) -> int:
    """Size of the sm_86 engine for one sequence of up to 16 new tokens."""
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    assert parser.parse_from_file(str(path)), [parser.get_error(i).desc() for i in range(parser.num_errors)]
    config = builder.create_builder_config()
    config.num_compute_capabilities = 1
    config.set_compute_capability(trt.ComputeCapability.SM86, 0)
    profile = builder.create_optimization_profile()
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        profile.set_shape(tensor.name, *(shape_of(tensor, new) for new in (1, 8, 16)))
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    assert plan is not None
    return int(plan.nbytes)


def shape_of(tensor: Any, new_tokens: int) -> list[int]:
    return [size if size >= 0 else (1 if axis == 0 else new_tokens) for axis, size in enumerate(tensor.shape)]


@pytest.mark.parametrize("name", MODELS)
def test_the_graph_builds(tiny_gguf: Callable[..., Path], tmp_path: Path, name: str) -> None:
    out = tmp_path / "model.onnx"
    write_portable(open_source(tiny_gguf(MODELS[name])), load_tier("int4"), out, dtype="float16", max_context=64)
    assert built_bytes(out) > 100_000
