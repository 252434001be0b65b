"""A graph that passes rewrite. Owns: Node, Graph, the walk along values. Needs: onnx, to read one. Never: values of weights.

Fused nodes have operators of our own, written with a lower-case first letter (`linear`, `embed`, `attend` ...), so that what
is still an ONNX operator after the last pass is known to be left over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edge.errors import SourceError
from engines.portable.constants import HasConstants
from engines.portable.reader import read_constant, read_model
from engines.portable.storage import ONNX_TYPES

VALUE_TYPES = ONNX_TYPES | {"int32": 6, "bool": 9}  # names of the types that values have -> onnx.TensorProto.DataType


@dataclass(eq=False, slots=True)
class Node:
    """One operator. Inputs and outputs are value names; attributes are plain Python values."""

    op: str
    name: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = ""


@dataclass(frozen=True, slots=True)
class Value:
    """An input or output of a graph."""

    name: str
    dtype: str  # VALUE_TYPES
    shape: tuple[int | str, ...]  # a word: as the caller gives it


@dataclass(slots=True)
class Graph(HasConstants):
    """Nodes in topological order, names of stored initializers, values of small constants."""

    path: Path  # of the ONNX file, for messages
    name: str
    nodes: list[Node]
    stored: frozenset[str]  # initializers whose values lie in the external file
    constants: dict[str, np.ndarray]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]

    def producers(self) -> dict[str, Node]:
        """Value name -> the node that makes it."""
        return {value: node for node in self.nodes for value in node.outputs}

    def uses(self) -> Counter[str]:
        """Value name -> how many node inputs and graph outputs read it."""
        counts = Counter(value for node in self.nodes for value in node.inputs)
        counts.update(value.name for value in self.outputs)
        return counts

    def replace(self, new: Mapping[str, Node]) -> None:
        """Puts each new node in the place of the node that made its output, then drops what nothing reads any more."""
        self.expand({value: [node] for value, node in new.items()})

    def expand(self, new: Mapping[str, Sequence[Node]]) -> None:
        """As replace, with several nodes for one; the last of them makes the output."""
        self.nodes = [part for node in self.nodes for part in new.get(node.outputs[0], [node])]
        self.remove_unused()

    def remove_unused(self) -> None:
        """Drops nodes none of whose outputs is read by a node that stays or is an output of the graph."""
        wanted = {value.name for value in self.outputs}
        kept = []
        for node in reversed(self.nodes):
            if wanted.intersection(node.outputs):
                wanted.update(node.inputs)
                kept.append(node)
        self.nodes = kept[::-1]


class Matcher:
    """Reads patterns backwards from a value. A mismatch is None; a pass then leaves the node as it is."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producers = graph.producers()

    def made_by(self, value: str, *ops: str) -> Node | None:
        """The node that makes `value`, where its operator is one of `ops`."""
        node = self.producers.get(value)
        return node if node is not None and node.op in ops else None

    def behind(self, value: str, *ops: str) -> str:
        """`value`, or the first input of the node that makes it while that is one of `ops`."""
        while (node := self.made_by(value, *ops)) is not None:
            value = node.inputs[0]
        return value

    def constant(self, value: str) -> np.ndarray | None:
        return self.graph.constants.get(value)


def read_graph(path: Path) -> Graph:
    """The graph of the portable ONNX at `path`, without its external data. SourceError where it is not one."""
    import onnx
    from onnx import helper

    model = read_model(path)
    stored, constants = set(), {}
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            stored.add(tensor.name)
        else:
            constants[tensor.name] = read_constant(path, tensor)
    nodes = []
    for proto in model.graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in proto.attribute}
        nodes.append(Node(proto.op_type, proto.name, list(proto.input), list(proto.output), attributes, proto.domain))
    return Graph(
        path=path,
        name=model.graph.name,
        nodes=nodes,
        stored=frozenset(stored),
        constants=constants,
        inputs=tuple(_value(path, value) for value in model.graph.input),
        outputs=tuple(_value(path, value) for value in model.graph.output),
    )


_TYPE_NAMES = {number: name for name, number in VALUE_TYPES.items()}


def _value(path: Path, proto: Any) -> Value:
    tensor = proto.type.tensor_type
    dtype = _TYPE_NAMES.get(tensor.elem_type)
    if dtype is None:
        raise SourceError(f"{path}: {proto.name!r} has ONNX type {tensor.elem_type}; no export has. Export it again")
    return Value(proto.name, dtype, tuple(dim.dim_param or int(dim.dim_value) for dim in tensor.shape.dim))
