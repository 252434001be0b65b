"""What a manifest says of an engine that TensorRT or TensorRT-RTX builds. Owns: EngineRecord and its parts. Needs: hashes.
Never: looks at a machine or a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edge.hashes import check_sha256


@dataclass(frozen=True, slots=True)
class EngineTensor:
    """One input or output of an engine that a library built."""

    name: str
    dtype: str  # int64, bool, float16 ...
    shape: tuple[int, ...]  # -1: as the profiles say
    is_input: bool


@dataclass(frozen=True, slots=True)
class ShapeRange:
    """The shapes that an optimization profile admits for one input, and the one it is tuned for."""

    smallest: tuple[int, ...]
    tuned: tuple[int, ...]
    largest: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """One optimization profile."""

    name: str  # prefill, decode
    shapes: dict[str, ShapeRange]  # of the inputs whose shape is not fixed


@dataclass(frozen=True, slots=True)
class GraphRecord:
    """A graph that a builder is given, without its weights."""

    path: str | None  # in the package; None: not kept, since the plan is built
    since: str  # the oldest version of the library that reads it: 10.3, 10.15, 1.7
    attention: Literal["linear", "paged"]  # KV in one tensor a layer, or in pages through the plugin edge::PagedAttention
    sha256: str  # of its content: the same source, tier, context and version of ours give the same
    tensors: tuple[EngineTensor, ...]

    def __post_init__(self) -> None:
        check_sha256(self.sha256)


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan that stands in the package, and what it runs on."""

    graph_sha256: str  # which of the graphs it was built from
    version: str  # of the library that built it, which alone can read it: 10.16.2.10
    driver: str | None  # CUDA version of the driver beside which it was built; None: there was none
    plugins: dict[str, str]  # name: SHA-256 of the code that the plan calls
    note: str  # what the builder had to do otherwise than asked, in words; "" for nothing

    def __post_init__(self) -> None:
        check_sha256(self.graph_sha256)
        for digest in self.plugins.values():
            check_sha256(digest)


@dataclass(frozen=True, slots=True)
class EngineRecord:
    """An engine of TensorRT or TensorRT-RTX: for which hardware, from what, and whether its last step is done."""

    kind: Literal["tensorrt", "tensorrt-rtx"]
    sm: str  # compute capability of the target: 8.6, 8.7
    weights_sha256: str  # of the weights that the graphs read
    profiles: tuple[EngineProfile, ...]
    graphs: tuple[GraphRecord, ...]
    plan: PlanRecord | None  # None: `edge build NAME.edge --finish` on the device makes it

    def __post_init__(self) -> None:
        check_sha256(self.weights_sha256)
        if self.plan is not None and self.plan.graph_sha256 not in {graph.sha256 for graph in self.graphs}:
            raise ValueError("engine.plan.graph_sha256: is none of the graphs")
