"""What a manifest says of an engine that TensorRT or TensorRT-RTX builds. Owns: EngineRecord and its parts. Needs: hashes.
Never: looks at a machine or a file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from edge.hashes import check_sha256
from edge.spec import check_range

_VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,6}){1,3}")
_FULL_VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,6}){2,3}")
_CAPABILITY = re.compile(r"[0-9]{1,2}\.[0-9]")
_DTYPES = ("bool", "int4", "int8", "uint8", "int32", "int64", "float16", "bfloat16", "float32")

_LONGEST_NAME = 255  # characters
LARGEST_FLOAT16 = 65504.0
_LONGEST_NOTE = 4096
_MOST_AXES = 8  # Dims::MAX_DIMS of TensorRT
_LARGEST_AXIS = (1 << 31) - 1  # TensorRT counts elements of a tensor so far
_MOST_TENSORS = 1 << 15  # two caches a layer in and out, of more layers than any model has
_MOST_PROFILES = 16
_MOST_GRAPHS = 16
_MOST_PLUGINS = 16


@dataclass(frozen=True, slots=True)
class EngineTensor:
    """One input or output of an engine that a library built."""

    name: str
    dtype: str  # int64, bool, float16 ...
    shape: tuple[int, ...]  # -1: as the profiles say
    is_input: bool

    def __post_init__(self) -> None:
        _check_name("tensor", self.name)
        if self.dtype not in _DTYPES:
            raise ValueError(f"{self.name}: dtype {self.dtype[:40]!r} is none of {', '.join(_DTYPES)}")
        _check_shape(self.name, self.shape, smallest=-1)


@dataclass(frozen=True, slots=True)
class ShapeRange:
    """The shapes that an optimization profile admits for one input, and the one it is tuned for."""

    smallest: tuple[int, ...]
    tuned: tuple[int, ...]
    largest: tuple[int, ...]

    def __post_init__(self) -> None:
        for name in ("smallest", "tuned", "largest"):
            _check_shape(name, getattr(self, name), smallest=1)
        if len({len(self.smallest), len(self.tuned), len(self.largest)}) > 1:
            raise ValueError("smallest, tuned and largest differ in the number of axes")
        if not all(low <= middle <= high for low, middle, high in zip(self.smallest, self.tuned, self.largest, strict=True)):
            raise ValueError(f"{self.smallest} to {self.largest}, tuned for {self.tuned}: not in this order")


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """One optimization profile."""

    name: str  # prefill, decode
    shapes: dict[str, ShapeRange]  # of the inputs whose shape is not fixed

    def __post_init__(self) -> None:
        _check_name("profile", self.name)
        check_range("shapes", len(self.shapes), 0, _MOST_TENSORS)
        for name in self.shapes:
            _check_name("input", name)


@dataclass(frozen=True, slots=True)
class GraphRecord:
    """A graph that a builder is given, without its weights."""

    path: str | None  # in the package; None: not kept, since the plan is built
    since: str  # the oldest version of the library that reads it: 10.3, 10.15, 1.7
    attention: Literal["linear", "paged"]  # KV in one tensor a layer, or in pages through the plugin edge::PagedAttention
    activations: Literal["float16", "int8"]  # what goes into the matrix products of the layers
    sha256: str  # of its content: the same source, tier, context and version of ours give the same
    tensors: tuple[EngineTensor, ...]
    profiles: tuple[EngineProfile, ...]

    def __post_init__(self) -> None:
        check_sha256(self.sha256)
        _check_version("since", self.since, _VERSION)
        check_range("tensors", len(self.tensors), 1, _MOST_TENSORS)
        check_range("profiles", len(self.profiles), 1, _MOST_PROFILES)
        tensors = {tensor.name: tensor for tensor in self.tensors}
        if len(tensors) != len(self.tensors):
            raise ValueError("tensors: two have the same name")
        for profile in self.profiles:
            for name, shapes in profile.shapes.items():
                if name not in tensors or not tensors[name].is_input:
                    raise ValueError(f"profile {profile.name}: {name!r} is no input of the graph")
                _check_fits(f"profile {profile.name}: {name}", tensors[name].shape, shapes)


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan that stands in the package, and what it runs on."""

    path: str  # in the package
    graph_sha256: str  # which of the graphs it was built from
    version: str  # of the library that built it, which alone can read it: 10.16.2.10
    driver: str | None  # CUDA version of the driver with which it was built and tuned; None: without one (TensorRT-RTX)
    device: str | None  # on which it was built, and which alone runs it: edge.machine.Machine.device; None: any of its SM
    plugins: dict[str, str]  # name: SHA-256 of the code that the plan calls
    note: str  # what the builder had to do otherwise than asked, in words; "" for nothing

    def __post_init__(self) -> None:
        check_sha256(self.graph_sha256)
        _check_version("version", self.version, _FULL_VERSION)
        if self.driver is not None:
            _check_version("driver", self.driver, _VERSION)
        if self.device is not None:
            _check_name("device", self.device)
        check_range("plugins", len(self.plugins), 0, _MOST_PLUGINS)
        for name, digest in self.plugins.items():
            _check_name("plugin", name)
            check_sha256(digest)
        check_range("note", len(self.note), 0, _LONGEST_NOTE)


@dataclass(frozen=True, slots=True)
class EngineRecord:
    """An engine of TensorRT or TensorRT-RTX: for which hardware, from what, and whether its last step is done."""

    kind: Literal["tensorrt", "tensorrt-rtx"]
    sm: str  # compute capability of the target: 8.6, 8.7
    weights_sha256: str  # of the weights that the graphs read
    graphs: tuple[GraphRecord, ...]
    plan: PlanRecord | None  # None: `edge build NAME.edge --finish` on the device makes it
    largest_activation: float  # magnitude, over a text; float16 holds 65,504
    note: str  # what the build left out, and why, in words; "" for nothing

    @property
    def paths(self) -> tuple[str, ...]:
        """Of the plan and the graphs, as far as the package has them."""
        plan = () if self.plan is None else (self.plan.path,)
        return *plan, *(graph.path for graph in self.graphs if graph.path is not None)

    def __post_init__(self) -> None:
        check_sha256(self.weights_sha256)
        if not _CAPABILITY.fullmatch(self.sm):
            raise ValueError(f"sm: {self.sm[:40]!r} is no compute capability, which looks like 8.6")
        check_range("graphs", len(self.graphs), 1, _MOST_GRAPHS)
        check_range("largest_activation", self.largest_activation, 0.0, LARGEST_FLOAT16)
        check_range("note", len(self.note), 0, _LONGEST_NOTE)
        if self.plan is not None and self.plan.graph_sha256 not in {graph.sha256 for graph in self.graphs}:
            raise ValueError("engine.plan.graph_sha256: is none of the graphs")
        if self.plan is not None and (self.plan.device is None) != (self.kind == "tensorrt-rtx"):
            raise ValueError(
                "engine.plan.device: plans of TensorRT are for one device, those of TensorRT-RTX for any of their SM"
            )


def version_numbers(version: str) -> tuple[int, ...]:
    """10.16.2.10 as numbers, which compare as versions do."""
    return tuple(int(part) for part in version.split("."))


def is_same_version(one: str, other: str) -> bool:
    """Whether all numbers that both name are equal: some places name the build (10.3.0.30), others do not (10.3.0)."""
    return all(mine == theirs for mine, theirs in zip(version_numbers(one), version_numbers(other), strict=False))


def _check_name(kind: str, name: str) -> None:
    if not name.isprintable() or not 0 < len(name) <= _LONGEST_NAME:
        raise ValueError(f"{kind}: {name[:40]!r} is no name")


def _check_version(key: str, version: str, form: re.Pattern[str]) -> None:
    if not form.fullmatch(version):
        raise ValueError(f"{key}: {version[:40]!r} is no version, which looks like 10.16.2.10")


def _check_shape(key: str, shape: tuple[int, ...], smallest: int) -> None:
    check_range(f"{key}: axes", len(shape), 0, _MOST_AXES)
    for axis, size in enumerate(shape):
        check_range(f"{key}: axis {axis}", size, smallest, _LARGEST_AXIS)


def _check_fits(key: str, shape: tuple[int, ...], shapes: ShapeRange) -> None:
    if len(shape) != len(shapes.tuned):
        raise ValueError(f"{key} has {len(shapes.tuned)} axes, the graph {len(shape)}")
    for axis, size in enumerate(shape):
        if size >= 0 and not shapes.smallest[axis] == size == shapes.largest[axis]:
            raise ValueError(f"{key}: axis {axis} is {size} in the graph")
