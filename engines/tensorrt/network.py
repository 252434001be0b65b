"""The network of a build. Owns: parsing, the check of inputs and outputs, optimization profiles. Needs: `trt`. Never: limits,
plans."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edge.engine_record import EngineProfile, EngineTensor
from edge.errors import BuildError
from engines.tensorrt.job import GraphRefused
from engines.tensorrt.log import LibraryLog, one_line

if TYPE_CHECKING:
    from engines.tensorrt.library import trt

# Names of trt.DataType -> our names and bits a value. A type that an older library lacks is no graph's there.
_TYPES = {
    "FLOAT": ("float32", 32),
    "HALF": ("float16", 16),
    "BF16": ("bfloat16", 16),
    "INT64": ("int64", 64),
    "INT32": ("int32", 32),
    "INT8": ("int8", 8),
    "UINT8": ("uint8", 8),
    "INT4": ("int4", 4),
    "BOOL": ("bool", 8),
}


def create_network(builder: trt.Builder, name: str) -> trt.INetworkDefinition:
    """An empty network whose tensors keep the types that the graph gives them."""
    from engines.tensorrt.library import trt

    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    network.name = name  # the default counts the networks of the process, and stands in the plan
    return network


def parse_graph(parser: trt.OnnxParser, graph: Path, library: str, log: LibraryLog) -> None:
    """Fills the parser's network from an ONNX file and the weights beside it. GraphRefused names what cannot be read.

    The network reads the weights where the parser keeps them: the parser must live until the plan is built.
    """
    if parser.parse_from_file(str(graph)):
        return
    if parser.num_errors == 0:
        raise GraphRefused(
            f"{graph}: {library} cannot read it ({log.last_error or 'it gives no reason'}). Build the package again"
        )
    error = parser.get_error(0)
    reason = one_line(error.desc())
    if not error.node_operator():
        raise GraphRefused(f"{graph}: {library} cannot read it ({reason}). Build the package again")
    raise GraphRefused(
        f"{graph}: node {error.node()}, {error.node_name()}: {library} does not take this {error.node_operator()} ({reason}). "
        "Build for another target, or with another version of the library"
    )


def read_tensors(network: trt.INetworkDefinition) -> tuple[EngineTensor, ...]:
    """Inputs, then outputs, as the library sees them."""
    inputs = [_tensor(network.get_input(index), True) for index in range(network.num_inputs)]
    outputs = [_tensor(network.get_output(index), False) for index in range(network.num_outputs)]
    return tuple(inputs + outputs)


def check_tensors(found: Sequence[EngineTensor], expected: Sequence[EngineTensor], graph: Path) -> None:
    """BuildError where the library sees other inputs or outputs than the graph was made with."""
    seen = {tensor.name: tensor for tensor in found}
    wanted = {tensor.name: tensor for tensor in expected}
    for name in [*wanted, *seen]:
        if not fits(seen.get(name), wanted.get(name)):
            raise BuildError(
                f"{graph}: {name} is {_words(seen.get(name))} for the library and {_words(wanted.get(name))} in the manifest. "
                "Build the package again"
            )


def constant_bytes(network: trt.INetworkDefinition) -> int:
    """Bytes of all constants, as packed as the graph holds them."""
    from engines.tensorrt.library import trt

    bits = 0
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        if layer.type == trt.LayerType.CONSTANT:
            values = layer.get_output(0)
            bits += math.prod(sizes_of(values.shape)) * _TYPES[values.dtype.name][1]
    return bits // 8


def create_profile(
    builder: trt.Builder, network: trt.INetworkDefinition, wanted: EngineProfile, graph: Path
) -> trt.IOptimizationProfile:
    """The library's form of a profile. BuildError where it does not fit the network's inputs."""
    from engines.tensorrt.library import trt

    profile = builder.create_optimization_profile()
    inputs = {tensor.name: tensor for tensor in read_tensors(network) if tensor.is_input}
    free = {name for name, tensor in inputs.items() if -1 in tensor.shape}
    if free != set(wanted.shapes):
        odd = ", ".join(sorted(free ^ set(wanted.shapes)))
        raise BuildError(f"{graph}: profile {wanted.name} and the inputs of free shape differ: {odd}. Build the package again")
    for name, shapes in wanted.shapes.items():
        smallest, tuned, largest = (trt.Dims(list(shape)) for shape in (shapes.smallest, shapes.tuned, shapes.largest))
        profile.set_shape(name, smallest, tuned, largest)
    return profile


def _tensor(tensor: trt.ITensor, is_input: bool) -> EngineTensor:
    return EngineTensor(tensor.name, type_name(tensor.dtype), sizes_of(tensor.shape), is_input)


def type_name(dtype: trt.DataType) -> str:
    """float16 ... of a type that some graph of ours may have."""
    return _TYPES[dtype.name][0]


def sizes_of(shape: trt.Dims) -> tuple[int, ...]:
    """-1 where a size is free."""
    return tuple(shape[axis] for axis in range(len(shape)))


def fits(seen: EngineTensor | None, wanted: EngineTensor | None) -> bool:
    """Whether they are the same; an output's size may be one that the library works out only while it runs."""
    if seen is None or wanted is None or len(seen.shape) != len(wanted.shape):
        return False
    sizes = zip(seen.shape, wanted.shape, strict=True)
    same = all(size == size_wanted or (size == -1 and not seen.is_input) for size, size_wanted in sizes)
    return same and (seen.dtype, seen.is_input) == (wanted.dtype, wanted.is_input)


def _words(tensor: EngineTensor | None) -> str:
    if tensor is None:
        return "missing"
    return f"{'an input' if tensor.is_input else 'an output'} {tensor.dtype} {list(tensor.shape)}"
