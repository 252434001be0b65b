"""Attention over pages. Owns: edge::PagedAttention nodes, the inputs of a paged graph. Needs: `project` and `attend` nodes.
Never: pages."""

from __future__ import annotations

from edge.spec import ModelSpec
from engines.lowering.graph import Graph, Node, Value
from engines.tensorrt.paged_attention import ATTRIBUTES, DOMAIN, INPUTS, OP, VERSION


def page_attention(graph: Graph, spec: ModelSpec) -> None:
    """project, attend -> linear x 3, Concat, edge::PagedAttention; tokens of all sequences are packed: [B, S] becomes [T]."""
    new: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if node.op == "project":
            new[node.outputs[0]] = _project(node)
        elif node.op == "attend":
            new[node.outputs[0]] = [_attend(node, spec)]
    graph.expand(new)
    steps = {"query_start": ("B1",), "kv_len": ("B",), "page_table": (len(spec.groups), "B", "P", 2), "page_moves": ("M", 4)}
    shapes: dict[str, tuple[int | str, ...]] = {**steps, "pool": (1,)}
    graph.inputs = (
        Value("input_ids", "int64", ("T",)),
        *(Value(name, INPUTS[name][0], shape) for name, shape in shapes.items()),
    )
    graph.outputs = tuple(Value(value.name, value.dtype, ("T", value.shape[-1])) for value in graph.outputs)


def _project(node: Node) -> list[Node]:
    """q, k and v of x side by side."""
    path = node.name.rsplit("/", 2)[0]  # /layers.0/attn of /layers.0/attn/Reshape/project
    weights, biases = node.attributes["weights"], node.attributes["biases"]
    parts = [
        Node("linear", f"{path}/{role}_proj/linear", list(node.inputs), [f"{path}/{role}_proj.out"], {"weight": weight})
        for role, weight in zip("qkv", weights, strict=True)
    ]
    for part, bias in zip(parts, biases, strict=bool(biases)):
        part.attributes["bias"] = bias
    joined = Node("Concat", f"{path}/qkv/Concat", [part.outputs[0] for part in parts], list(node.outputs), {"axis": -1})
    return [*parts, joined]


def _attend(node: Node, spec: ModelSpec) -> Node:
    layer = node.attributes["layer"]
    group = next(index for index, layers in enumerate(spec.groups) if layer in layers)
    norms = [node.attributes[name] for name in ("q_norm", "k_norm") if node.attributes[name]]
    attributes = {
        "group": group,
        "group_layer": spec.groups[group].index(layer),
        "group_layers": len(spec.groups[group]),
        "heads": node.attributes["heads"],
        "kv_heads": node.attributes["kv_heads"],
        "head_dim": spec.head_dim,
        "window": node.attributes["window"],
        "qk_norm": int(bool(norms)),
        "scale": node.attributes["scale"],
        "soft_cap": node.attributes["soft_cap"],
        "epsilon": node.attributes["epsilon"],
        "plugin_version": str(VERSION),
        "plugin_namespace": DOMAIN,
    }
    assert attributes.keys() == ATTRIBUTES.keys()
    step = ["query_start", "kv_len", "page_table", "page_moves", "pool"]
    inputs = [node.inputs[0], *step, node.attributes["inv_freq"], *norms]
    name = f"{node.name.rsplit('/', 1)[0]}/{OP}"
    return Node(OP, name, inputs, list(node.outputs), attributes, DOMAIN)
