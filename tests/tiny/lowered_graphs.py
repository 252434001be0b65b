"""Tiny models lowered for TensorRT. Owns: the way from a model to graphs, weights read back. Needs: the build extra."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from calibration.tiers import load_tier
from edge.progress import SilentProgress
from engines.portable.export import write_portable
from engines.portable.reader import PortableModel, read_portable
from engines.sources.base import open_source
from engines.tensorrt.lower import Lowered, lower_graphs

CONTEXT = 64


def lower_tiny(
    gguf: Path, tier: str, folder: Path, readers: tuple[str, ...], context: int = CONTEXT
) -> tuple[PortableModel, Lowered]:
    """The portable float16 graph of `gguf` and what it is lowered to, both in `folder`."""
    portable = folder / "portable.onnx"
    write_portable(open_source(gguf), load_tier(tier), portable, dtype="float16", max_context=context)
    graphs = folder / "graphs"
    graphs.mkdir()
    return read_portable(portable), lower_graphs(portable, graphs, readers, SilentProgress())


def lowered_weights(path: Path, model: PortableModel) -> dict[str, np.ndarray]:
    """Every tensor of the graph at `path` as it multiplies: float32 [N] or [N, K], by canonical name."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(path)).graph
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    return {name: _dense(arrays, name, model) for name in model.stored}


def _dense(arrays: dict[str, Any], name: str, model: PortableModel) -> np.ndarray:
    if name in arrays:
        return np.asarray(arrays[name], np.float32).T
    stored = model.stored[name]
    quants, scales = (np.asarray(arrays[f"{name}.{part}"]).astype(np.float32) for part in ("quants", "scales"))
    if quants.shape == stored.shape and len(scales) == len(quants) and scales.ndim == 1:
        return quants * scales[:, None]
    weights = quants * np.repeat(scales, stored.group, axis=0)
    if f"{name}.offsets" in arrays:
        weights += np.repeat(arrays[f"{name}.offsets"].astype(np.float32), stored.group, axis=0)
    return weights[: stored.shape[1]].T
