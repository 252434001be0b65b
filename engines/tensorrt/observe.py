"""Static scales for int8 inputs. Owns: a run of the reference that watches them. Needs: onnxruntime, observers. Never: texts,
the graphs that use the scales."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from calibration.activations import TokenMaxima
from edge.errors import BuildError
from edge.progress import Progress
from engines.lowering.fold_weights import fold_linears
from engines.lowering.graph import read_graph
from engines.portable.reader import read_model, read_portable
from engines.portable.storage import ONNX_TYPES
from engines.reference.ort import OrtGraph
from engines.reference.rewrites import gather_before_dequantise
from engines.tensorrt.passes.quantise_inputs import quantised_inputs

# Of the rows that a scale covers. Neither this nor 0.99 is within a tier's limits for the models that were tried (KL): 0.85 and
# 1.09 for SmolLM2-135M, 0.33 and 0.18 for Gemma-3-270M; leaving down_proj and o_proj out, 0.15 and 0.09.
SHARE = 1.0


def input_scales(portable: Path, windows: Sequence[Sequence[int]], threads: int, progress: Progress) -> dict[str, float]:
    """Value that int8 matrices read -> its scale, from a run of the float32 portable ONNX over `windows` of tokens."""
    spec, graph = read_portable(portable).spec, read_graph(portable)
    fold_linears(graph)
    watched = quantised_inputs(graph, int8_matrices(portable))
    observed = portable.with_name("observed.onnx")
    _write_observed(portable, observed, watched)
    session = OrtGraph.open(observed, spec, threads)
    maxima = {value: TokenMaxima() for value in watched}
    progress.start("observing activations", sum(len(window) for window in windows), "tokens")
    for window in windows:
        for rows, cache in session.chunks(window):
            for number, value in enumerate(watched):
                maxima[value].add(cache.past.pop(f"maxima.{number}"))
            progress.advance(len(rows))
    progress.done()
    return {value: rows.scale(SHARE) for value, rows in maxima.items()}


def int8_matrices(portable: Path) -> frozenset[str]:
    """Canonical names of the tensors that a portable ONNX holds in int8."""
    return frozenset(name for name, stored in read_portable(portable).stored.items() if stored.kind == "int8")


def _write_observed(portable: Path, out: Path, watched: Sequence[str]) -> None:
    """The portable graph over the same data with outputs maxima.N: the largest magnitude in each row of a watched value."""
    from onnx import helper, numpy_helper

    model = read_model(portable)
    gather_before_dequantise(model.graph)
    axes = "maxima.axes"
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1], np.int64), axes))
    for number, value in enumerate(watched):
        output = f"maxima.{number}"
        model.graph.node.append(helper.make_node("Abs", [value], [f"{output}.abs"]))
        model.graph.node.append(helper.make_node("ReduceMax", [f"{output}.abs", axes], [output], keepdims=0))
        model.graph.output.append(helper.make_tensor_value_info(output, ONNX_TYPES["float32"], None))
    try:
        out.write_bytes(model.SerializeToString())
    except OSError as error:
        raise BuildError(f"{out}: cannot be written ({error.strerror}). Free some space, or choose another -o") from error
