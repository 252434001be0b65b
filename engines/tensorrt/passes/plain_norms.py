"""RMSNormalization in smaller operators. Owns: that decomposition. Needs: graph. Never: other norms.

The parser reads RMSNormalization since TensorRT 10.15 (TensorRT CHANGELOG.md). These are the layers that it makes of one then
(onnx-tensorrt onnxOpImporters.cpp at 6bde659, 10.16): float32 inside, the weight applied in the type of the activations.
"""

from __future__ import annotations

import numpy as np

from engines.lowering.graph import VALUE_TYPES, Graph, Node


def decompose_norms(graph: Graph) -> None:
    """y = cast(x / sqrt(mean(x^2) + epsilon)) * weight, mean and quotient in float32, over the last axis."""
    dtype = next(value for value in graph.outputs if value.name == "logits").dtype
    graph.expand({node.outputs[0]: _nodes(graph, node, dtype) for node in graph.nodes if node.op == "RMSNormalization"})


def _nodes(graph: Graph, node: Node, dtype: str) -> list[Node]:
    path, nodes = node.name, list[Node]()

    def add(op: str, inputs: list[str], output: str = "", **attributes: object) -> str:
        name = f"{path}/{op}" if op != "Cast" or not nodes else f"{path}/Cast_back"
        nodes.append(Node(op, name, inputs, [output or f"{name}.out"], attributes))
        return nodes[-1].outputs[0]

    epsilon = float(node.attributes["epsilon"])
    bound = graph.constant(f"epsilon.{epsilon!r}", np.array(epsilon, np.float32))
    x = add("Cast", [node.inputs[0]], to=VALUE_TYPES["float32"])
    squares = add("Pow", [x, graph.constant("two", np.array(2, np.float32))])
    mean = add("ReduceMean", [squares, graph.ints(-1)], keepdims=1)
    root = add("Sqrt", [add("Add", [mean, bound])])
    normed = add("Cast", [add("Div", [x, root])], to=VALUE_TYPES[dtype])
    add("Mul", [normed, node.inputs[1]], node.outputs[0])
    return nodes
