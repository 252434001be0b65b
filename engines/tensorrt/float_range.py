"""Whether a lowered graph stays inside float16. Owns: the observation of its values. Needs: ONNX Runtime. Never: what to do
about it.

ONNX Runtime has no float16 kernels on a CPU: it runs these graphs in float32, where nothing overflows, so that logits prove the
graph and not its range. Here the largest magnitude of every value is watched instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edge.engine_record import LARGEST_FLOAT16
from edge.errors import BuildError
from edge.progress import Progress
from edge.spec import ModelSpec
from engines.portable.reader import read_model
from engines.portable.storage import ONNX_TYPES
from engines.reference.ort import OrtGraph

# Operators whose results are activations of the graph's type. Others move values about, or cannot enlarge them.
_WATCHED = frozenset({"Add", "Attention", "Div", "Gelu", "MatMul", "Mul", "ReduceSum", "RMSNormalization", "RotaryEmbedding"})


@dataclass(frozen=True, slots=True)
class LargestValue:
    """Of all activations over a text."""

    magnitude: float  # infinite or NaN where one was
    node: str  # that made it

    @property
    def fits(self) -> bool:
        """Whether float16 holds it. There is no margin: texts that go further make infinities, which the runtime reports."""
        return bool(np.isfinite(self.magnitude)) and self.magnitude <= LARGEST_FLOAT16


def largest_value(
    graph: Path, spec: ModelSpec, windows: Sequence[Sequence[int]], threads: int, progress: Progress
) -> LargestValue:
    """The largest magnitude of an activation of the lowered float16 `graph` over `windows` of tokens, computed in float32."""
    observed = graph.with_name("range.onnx")
    nodes = _write_observed(graph, observed)
    try:
        session = OrtGraph.open(observed, spec, threads)
        found = LargestValue(0.0, "")
        progress.start("watching the range of activations", sum(len(window) for window in windows), "tokens")
        for window in windows:
            for rows, cache in session.chunks(window):
                largest = np.array([float(cache.past.pop(f"range.{number}")) for number in range(len(nodes))])
                # NaN is what an infinity has become, so it is larger than all.
                at = int(np.argmax(np.nan_to_num(largest, nan=np.inf)))
                if not largest[at] <= found.magnitude:
                    found = LargestValue(float(largest[at]), nodes[at])
                progress.advance(len(rows))
        progress.done()
    finally:
        observed.unlink(missing_ok=True)
    return found


def _write_observed(graph: Path, out: Path) -> list[str]:
    """The graph over the same data with outputs range.N, float32 []: the largest magnitude of what node N made. Returns the
    nodes' names."""
    from onnx import helper

    model = read_model(graph)
    stored = {tensor.name for tensor in model.graph.initializer}
    wide = _float32_values(model.graph.node)
    watched = [
        node
        for node in model.graph.node
        if node.op_type in _WATCHED and node.output[0] not in wide and not stored.issuperset(node.input)
    ]
    for number, node in enumerate(watched):
        output = f"range.{number}"
        # The cast goes first: a value beyond float16 must be seen as it is.
        model.graph.node.append(helper.make_node("Cast", [node.output[0]], [f"{output}.float"], to=ONNX_TYPES["float32"]))
        model.graph.node.append(helper.make_node("Abs", [f"{output}.float"], [f"{output}.abs"]))
        model.graph.node.append(helper.make_node("ReduceMax", [f"{output}.abs"], [output], keepdims=0))
        model.graph.output.append(helper.make_tensor_value_info(output, ONNX_TYPES["float32"], []))
    try:
        out.write_bytes(model.SerializeToString())
    except OSError as error:
        raise BuildError(f"{out}: cannot be written ({error.strerror}). Free some space, or choose another -o") from error
    return [node.name for node in watched]


def _float32_values(nodes: Iterable[Any]) -> set[str]:
    """What a float16 graph computes in float32: casts to it, and what is made of those up to a cast back."""
    found: set[str] = set()
    for node in nodes:
        if node.op_type == "Cast":
            if node.attribute[0].i == ONNX_TYPES["float32"]:
                found.add(node.output[0])
        elif not found.isdisjoint(node.input):
            found.update(node.output)
    return found
