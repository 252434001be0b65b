"""From the portable graph to what TensorRT reads. Owns: READERS, the graphs and weights of an engine. Needs: passes, forms.
Never: builds a plan.

What a reader's parser takes, of the operators of engines/portable/graph.py (S: onnx-tensorrt sources and docs/operators.md at
10.1, behind which no change up to 10.3 is named, and at the commits that TensorRT pins, 6bde659 for 10.16 and 7c51a63 for 11.1;
C: CHANGELOG.md of TensorRT):

    operator                10.3 (JetPack 6)         10.15 to 11.1                         TensorRT-RTX 1.7 (run here)
    opset                   9 to 20, newer unchecked S    9 to 24 S                        reads 24
    Attention               no                       since 10.14 C; 4-D, no softcap, no past or present S    as 10.15
    TensorScatter           no                       since 10.15 C; 4-D, axis -2, linear, float16 S          as 10.15
    RotaryEmbedding         no                       since 10.15 C                         yes
    RMSNormalization        no                       since 10.15 C                         yes
    DequantizeLinear int4   yes; scales > 0; zero point 0; no output_dtype S    the same S    yes; any scale
    DequantizeLinear int8   the same                 the same S                            yes; scales > 0; blocks not fused
    Gelu, ReduceMean, Pad, Slice, Range, Gather, And, LessOrEqual, Where    yes S    yes S    yes
    a plugin                by node name; version, namespace from attributes S    since 10.10 also by domain C    no

So 10.15 and TensorRT-RTX take the portable operators, over linear caches, and 10.3 takes a graph whose attention is one
edge::PagedAttention a layer, which also does rotary and the cache. All graphs of an engine read the same weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from edge.engine_record import EngineTensor
from edge.errors import BuildError
from edge.hashes import file_sha256
from edge.progress import Progress
from edge.spec import ModelSpec
from engines.engine_weight import EngineWeight
from engines.lowering.fold_weights import fold_biases, fold_embedding, fold_linears
from engines.lowering.fuse_attention import fuse_attention
from engines.lowering.graph import Graph, read_graph
from engines.portable.reader import read_portable
from engines.tensorrt.graph_file import encode_graph, engine_tensors
from engines.tensorrt.passes.capped_attention import decompose_capped_attention
from engines.tensorrt.passes.expand_weights import Forms, expand_weights
from engines.tensorrt.passes.logit_rows import take_logit_rows
from engines.tensorrt.passes.one_sequence import carry_one_sequence
from engines.tensorrt.passes.page_attention import page_attention
from engines.tensorrt.passes.plain_norms import decompose_norms
from engines.tensorrt.passes.quantise_inputs import quantise_inputs
from engines.tensorrt.passes.scaled_residual import scale_residual
from engines.tensorrt.weight_file import write_weights
from engines.tensorrt.weight_forms import weight_form

Pass = Callable[[Graph, ModelSpec], None]


@dataclass(frozen=True, slots=True)
class Reader:
    """A library, from some version on, and the passes that make a graph for it."""

    since: str
    attention: Literal["linear", "paged"]
    opset: int
    ir_version: int
    passes: tuple[Pass, ...]
    activations: Literal["float16", "int8"]  # what goes into the products of int8 matrices
    unread: frozenset[str]  # operators of the portable graph that it does not read


def _plain(apply: Callable[[Graph], None]) -> Pass:
    """A pass that needs no spec."""

    def run(graph: Graph, spec: ModelSpec) -> None:
        apply(graph)

    return run


# What TensorRT-RTX and TensorRT since 10.15 share.
LINEAR: tuple[Pass, ...] = (
    _plain(fold_linears),
    _plain(fold_biases),
    _plain(fold_embedding),
    scale_residual,
    _plain(take_logit_rows),
    _plain(decompose_capped_attention),
    _plain(carry_one_sequence),
)
PAGED: tuple[Pass, ...] = (
    _plain(fold_linears),
    _plain(fold_biases),
    _plain(fold_embedding),
    scale_residual,
    _plain(fuse_attention),
    page_attention,
    _plain(take_logit_rows),
    _plain(decompose_norms),
)

_SINCE_10_15 = frozenset({"Attention", "TensorScatter", "RotaryEmbedding", "RMSNormalization"})

_RTX = Reader("1.7", "linear", 24, 12, LINEAR, activations="float16", unread=frozenset())
_LINEAR = Reader("10.15", "linear", 24, 12, LINEAR, activations="float16", unread=frozenset())
# Opset 21 is the oldest that has blocked int4; IR version 10 is the one of its time.
_PAGED = Reader("10.3", "paged", 21, 10, PAGED, activations="float16", unread=_SINCE_10_15)

READERS: dict[str, Reader] = {
    "tensorrt-rtx": _RTX,
    "tensorrt-10.15": _LINEAR,
    "tensorrt-10.15-int8": replace(_LINEAR, activations="int8"),
    "tensorrt-10.3": _PAGED,
    "tensorrt-10.3-int8": replace(_PAGED, activations="int8"),
}

WEIGHTS = "weights.data"


@dataclass(frozen=True, slots=True)
class LoweredGraph:
    """A graph on the disk. Its weights lie beside it."""

    reader: str
    path: Path
    since: str
    attention: Literal["linear", "paged"]
    activations: Literal["float16", "int8"]
    sha256: str
    tensors: tuple[EngineTensor, ...]


@dataclass(frozen=True, slots=True)
class Lowered:
    """All graphs of an engine and the weights that they share."""

    graphs: tuple[LoweredGraph, ...]
    weights: Path
    weights_sha256: str
    weights_bytes: int
    stored: Mapping[str, EngineWeight]  # by canonical tensor name


def lower_graphs(
    portable: Path, folder: Path, readers: Sequence[str], progress: Progress, input_scales: Mapping[str, float] | None = None
) -> Lowered:
    """Writes a graph for each of `readers` (keys of READERS) and weights.data into `folder`, from a float16 portable ONNX.

    Readers with int8 activations need `input_scales` (observe.py) of the same model.
    BuildError names the first node that no pass recognised, or the file that cannot be written. Weights stream by rows.
    """
    model = read_portable(portable)
    forms = {name: weight_form(model, stored) for name, stored in model.stored.items()}
    lowered = {name: _lower(portable, model.spec, READERS[name], forms, input_scales or {}) for name in readers}
    weights = folder / WEIGHTS
    written = write_weights(weights, model, tuple(forms.values()), progress)
    pieces = [piece for form in forms.values() for piece in form.pieces]
    graphs = []
    for name, graph in lowered.items():
        reader, path = READERS[name], folder / f"{name}.onnx"
        encoded = encode_graph(graph, pieces, WEIGHTS, written.offsets, reader.opset, reader.ir_version)
        _write(path, encoded)
        digest = hashlib.sha256(encoded).hexdigest()
        graphs.append(
            LoweredGraph(name, path, reader.since, reader.attention, reader.activations, digest, engine_tensors(graph))
        )
    return Lowered(
        graphs=tuple(graphs),
        weights=weights,
        weights_sha256=file_sha256(weights, progress),
        weights_bytes=weights.stat().st_size,
        stored={
            name: EngineWeight(form.kind, sum(piece.nbytes for piece in form.pieces), written.rounding[name])
            for name, form in forms.items()
        },
    )


def _lower(portable: Path, spec: ModelSpec, reader: Reader, forms: Forms, input_scales: Mapping[str, float]) -> Graph:
    graph = read_graph(portable)
    for apply in reader.passes:
        apply(graph, spec)
    if reader.activations == "int8":
        quantise_inputs(graph, frozenset(name for name, form in forms.items() if form.kind == "int8"), input_scales)
    expand_weights(graph, forms)
    for node in graph.nodes:
        if node.op[0].islower() or node.op in reader.unread:
            raise BuildError(
                f"{portable}: {node.name}: {node.op} is not part of a form that the {reader.attention} graph for "
                f"{reader.since} knows. Export the model again with edge export"
            )
    return graph


def _write(path: Path, encoded: bytes) -> None:
    try:
        path.write_bytes(encoded)
    except OSError as error:
        raise BuildError(
            f"{path}: cannot be written ({error.strerror}). Free some space, or choose another place with -o"
        ) from error
