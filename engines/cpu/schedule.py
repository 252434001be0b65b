"""Fused nodes along the residual stream become plan steps. Owns: the last check. Needs: graph, cpu_plan. Never: bytes."""

from __future__ import annotations

from edge.errors import BuildError
from edge.executors.cpu_plan import PlanStep
from edge.spec import ModelSpec
from engines.lowering.graph import Graph, Node

_FUSED = ("embed", "project", "attend", "add", "gated", "head")


def schedule(graph: Graph, spec: ModelSpec) -> tuple[PlanStep, ...]:
    """Steps of the whole graph. BuildError naming the first node that no pass recognised, or that stands out of order."""
    for node in graph.nodes:
        if node.op not in _FUSED:
            raise BuildError(
                f"{graph.path}: {node.name}: {node.op} is not part of a form that the cpu target knows. "
                "Export the model again with edge export, or run the ONNX in ONNX Runtime"
            )
    steps = []
    stream = ""  # the value that the residual stream holds now
    groups = spec.groups
    for node in graph.nodes:
        if node.op in ("project", "gated", "add", "head") and node.inputs[0] != stream:
            raise BuildError(f"{graph.path}: {node.name}: does not read the residual stream ({stream}). Export the model again")
        if node.op in ("project", "gated") and "norm" not in node.attributes:
            raise BuildError(f"{graph.path}: {node.name}: has no RMSNormalization in front. Export the model again")
        if node.op in ("embed", "add"):
            stream = node.outputs[0]
        steps.append(_step(graph, node, groups, spec))
    if not steps or steps[-1].op != "head" or steps[0].op != "embed":
        raise BuildError(f"{graph.path}: the graph does not lead from input_ids to logits. Export the model again")
    return tuple(steps)


def _step(graph: Graph, node: Node, groups: tuple[tuple[int, ...], ...], spec: ModelSpec) -> PlanStep:
    a = node.attributes
    if node.op == "embed":
        return PlanStep("embed", {"weight0": a["weight"]}, {"scale": a["scale"]})
    if node.op == "project":
        tensors = {f"weight{i}": name for i, name in enumerate(a["weights"])} | {"norm": a["norm"]}
        if a["biases"]:
            tensors["bias"] = joined_name(a["biases"])
        return PlanStep("project", tensors, {"epsilon": a["epsilon"]})
    if node.op == "gated":
        tensors = {"weight0": a["gate"], "weight1": a["up"], "norm": a["norm"]}
        return PlanStep("gated", tensors, {"activation": a["activation"], "epsilon": a["epsilon"]})
    if node.op == "add":
        source = "attention" if _maker(graph, node.inputs[1]).op == "attend" else "feed_forward"
        tensors = {"weight0": a["weight"]}
        if a["post_norm"]:
            tensors["post_norm"] = a["post_norm"]
        return PlanStep("add", tensors, {"input": source, "epsilon": a["epsilon"]})
    if node.op == "head":
        values = {"epsilon": a["epsilon"], "soft_cap": a["soft_cap"]}
        return PlanStep("head", {"weight0": a["weight"], "norm": a["norm"]}, values)
    layer = a["layer"]
    if (a["heads"], a["kv_heads"], a["window"]) != (spec.num_heads, spec.num_kv_heads, spec.layers[layer].window):
        raise BuildError(f"{graph.path}: {node.name}: heads or window differ from the model's metadata. Export the model again")
    group = next(i for i, layers in enumerate(groups) if layer in layers)
    tensors = {"inv_freq": a["inv_freq"]}
    tensors |= {name: a[name] for name in ("q_norm", "k_norm") if a[name]}
    values = {"group": group, "group_layer": groups[group].index(layer)}
    return PlanStep("attend", tensors, {**values, **{name: a[name] for name in ("window", "epsilon", "scale", "soft_cap")}})


def joined_vectors(graph: Graph) -> dict[str, tuple[str, ...]]:
    """Name in the plan -> the stored vectors that stand there one behind the other."""
    found = (node.attributes["biases"] for node in graph.nodes if node.op == "project")
    return {joined_name(biases): biases for biases in found if biases}


def joined_name(biases: tuple[str, ...]) -> str:
    """layers.3.attn.bias for the biases of layers.3.attn.q_proj, k_proj and v_proj."""
    return biases[0].replace(".q_proj.", ".")


def _maker(graph: Graph, value: str) -> Node:
    return next(node for node in graph.nodes if value in node.outputs)
