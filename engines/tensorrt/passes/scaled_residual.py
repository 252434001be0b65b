"""The residual stream of models that leave float16's range. Owns: its scale. Needs: graph, spec. Never: values of weights.

Gemma 3 adds up to more than float16 holds: 104,000 in the 270M model, where 65,504 is the largest number. Its branches are
normed before they are added, so that the stream is made by the embedding and by RMSNormalization only, and it is read by
RMSNormalization only, which gives the same for x and for s x where epsilon becomes s^2 epsilon. So the stream is carried times
s: the factor of the embedding and the weights of the norms behind the branches take it. A power of two leaves every digit; what
falls below float16's normal numbers is 2^-8 in the stream, and nothing beside sums of thousands.
"""

from __future__ import annotations

from edge.errors import BuildError
from edge.spec import ModelSpec
from engines.lowering.graph import Graph, Node

SCALE = 2.0**-6  # room for sums of 4 million


def scale_residual(graph: Graph, spec: ModelSpec) -> None:
    """Carries the residual stream times SCALE, in models whose branches end in a norm. Needs folded embeddings.

    BuildError where something else reads the stream than a norm or the next addition.
    """
    if not spec.post_norms:
        return
    dtype = next(value for value in graph.outputs if value.name == "logits").dtype
    factor = graph.scalar("residual_scale", SCALE, dtype)
    producers, stream = graph.producers(), set[str]()
    weights: dict[str, list[Node]] = {}  # by the output of the norm that reads it
    for node in graph.nodes:
        read = stream.intersection(node.inputs)
        if node.op == "embed":
            node.attributes["scale"] *= SCALE
        elif not read:
            continue
        elif node.op == "RMSNormalization":
            node.attributes["epsilon"] *= SCALE**2
            continue
        else:
            branch = producers.get(next((value for value in node.inputs if value not in stream), ""))
            if node.op != "Add" or branch is None or branch.op != "RMSNormalization":
                raise BuildError(f"{graph.path}: {node.name} ({node.op}) reads the residual stream. Export the model again")
            weights[branch.outputs[0]] = [_scaled_weight(branch, factor), branch]
        stream.add(node.outputs[0])
    graph.expand(weights)


def _scaled_weight(norm: Node, factor: str) -> Node:
    """The weight of `norm` times `factor`, which a builder folds."""
    path = norm.name.rsplit("/", 1)[0]
    scaled = Node("Mul", f"{path}/residual_scale/Mul", [norm.inputs[1], factor], [f"{path}/residual_scale/Mul.out"])
    norm.inputs[1] = scaled.outputs[0]
    return scaled
