"""Folded weights become nodes that TensorRT reads. Owns: nodes of `linear` and `embed`. Needs: forms. Never: values.

blocks    x -> [Pad] -> MatMul DequantizeLinear(quants [Kp, N], scales; blocked, axis 0) [-> Add MatMul(group_sum(x), offsets)]
channels  x -> MatMul Transpose(DequantizeLinear(quants [N, K], scales [N]; axis 0)); a lookup: Gather, axis 0, of the same
dense     x -> MatMul [K, N]

A bias is an Add behind these.

A table that is the head too is dequantised once; TensorRT-RTX 1.7 then keeps it once, in 8 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engines.lowering.graph import Graph, Node
from engines.portable.storage import node_path
from engines.tensorrt.weight_forms import BlocksForm, ChannelsForm, DenseForm

Forms = Mapping[str, DenseForm | BlocksForm | ChannelsForm]  # by canonical tensor name


def expand_weights(graph: Graph, forms: Forms) -> None:
    """Puts the nodes of its form in the place of each `linear` and `embed`."""
    expansion = _Expansion(graph, forms)
    for node in graph.nodes:
        if node.op == "linear":
            expansion.linear(node)
        elif node.op == "embed":
            expansion.embed(node)
    graph.expand(expansion.new)
    graph.stored = frozenset(piece.name for form in forms.values() for piece in form.pieces)


class _Expansion:
    """Nodes for each output that they stand for. What two of them share is made where it is read first."""

    def __init__(self, graph: Graph, forms: Forms) -> None:
        self.new: dict[str, list[Node]] = {}
        self._graph = graph
        self._forms = forms
        self._leading = len(next(value for value in graph.inputs if value.name == "input_ids").shape)  # of [B, S] or [T]
        self._made: set[str] = set()
        self._nodes: list[Node] = []

    def linear(self, node: Node) -> None:
        """x [..., K] -> x W^T [+ bias] [..., N]."""
        form, x, path = self._forms[node.attributes["weight"]], node.inputs[0], node.name.rsplit("/", 1)[0]
        product = self._product(form, x, path)
        if "bias" in node.attributes:
            self._add("Add", f"{path}/bias/Add", [product, node.attributes["bias"]])
        self._nodes[-1].outputs = list(node.outputs)
        self._close(node)

    def _product(self, form: DenseForm | BlocksForm | ChannelsForm, x: str, path: str) -> str:
        if isinstance(form, BlocksForm):
            x = self._padded(x, form)
        if isinstance(form, BlocksForm) and form.has_offsets:
            product = self._add("MatMul", f"{path}/quants/MatMul", [x, self._matrix(form)])
            sums = self._group_sum(x, form.stored.group)
            offsets = self._add("MatMul", f"{path}/offsets/MatMul", [sums, form.offsets.name])
            return self._add("Add", f"{path}/Add", [product, offsets])
        return self._add("MatMul", f"{path}/MatMul", [x, self._matrix(form)])

    def embed(self, node: Node) -> None:
        """ids [...] -> rows of W [..., K], times the node's factor."""
        form, ids, path = self._forms[node.attributes["weight"]], node.inputs[0], node_path(node.attributes["weight"])
        if isinstance(form, ChannelsForm):
            rows = self._add("Gather", f"{path}/Gather", [self._channels(form), ids], axis=0)
        else:
            rows = self._columns(self._matrix(form), ids, path)
            if isinstance(form, BlocksForm):
                rows = self._completed(form, rows, ids, path)
        scale = node.attributes["scale"]
        if scale != 1.0:
            dtype = next(value for value in self._graph.outputs if value.name == "logits").dtype
            rows = self._add("Mul", f"{path}/Mul", [rows, self._graph.scalar(f"embed.scale.{scale:g}", scale, dtype)])
        self._nodes[-1].outputs = list(node.outputs)
        self._close(node)

    def _completed(self, form: BlocksForm, rows: str, ids: str, path: str) -> str:
        """Rows [..., Kp] of an int4 table with their offsets and without their padding."""
        group, inputs, zeros = form.stored.group, form.stored.shape[1], (0,) * self._leading
        ints = self._graph.ints
        if form.has_offsets:
            offsets = self._columns(form.offsets.name, ids, f"{path}/offsets")
            offsets = self._add("Unsqueeze", f"{path}/offsets/Unsqueeze", [offsets, ints(-1)])
            rows = self._add("Reshape", f"{path}/offsets/Reshape", [rows, ints(*zeros, -1, group)])
            rows = self._add("Add", f"{path}/offsets/Add", [rows, offsets])
            rows = self._add("Reshape", f"{path}/offsets/Reshape_1", [rows, ints(*zeros, form.stored.padded_inputs)])
        if form.stored.padded_inputs != inputs:
            rows = self._add("Slice", f"{path}/Slice", [rows, ints(0), ints(inputs), ints(self._leading)])
        return rows

    def _columns(self, matrix: str, ids: str, path: str) -> str:
        """Columns `ids` of [K, N] as rows [..., K]."""
        columns = self._add("Gather", f"{path}/Gather", [matrix, ids], axis=1)
        return self._add("Transpose", f"{path}/Transpose", [columns], perm=[*range(1, self._leading + 1), 0])

    def _matrix(self, form: DenseForm | BlocksForm | ChannelsForm) -> str:
        """W as [K, N]; int4 without its offsets, with its padding."""
        path = node_path(form.name)
        if isinstance(form, DenseForm):
            return form.name
        if isinstance(form, ChannelsForm):
            return self._once("Transpose", f"{path}/Transpose_weight", [self._channels(form)], perm=[1, 0])
        inputs = [form.stored.quants.name, form.stored.scales.name]
        return self._once("DequantizeLinear", f"{path}/DequantizeLinear", inputs, axis=0, block_size=form.stored.group)

    def _channels(self, form: ChannelsForm) -> str:
        """W as [N, K]."""
        inputs = [form.quants.name, form.scales.name]
        return self._once("DequantizeLinear", f"{node_path(form.name)}/DequantizeLinear", inputs, axis=0)

    def _padded(self, x: str, form: BlocksForm) -> str:
        missing = form.stored.padded_inputs - form.stored.shape[1]
        if not missing:
            return x
        pads = self._graph.ints(*(0,) * (2 * self._leading + 1), missing)
        return self._once("Pad", f"{_owner(x)}/pad_{missing}/Pad", [x, pads])

    def _group_sum(self, x: str, group: int) -> str:
        path = f"{_owner(x)}/group_sum_{group}"
        grouped = self._once("Reshape", f"{path}/Reshape", [x, self._graph.ints(*(0,) * self._leading, -1, group)])
        return self._once("ReduceSum", f"{path}/ReduceSum", [grouped, self._graph.ints(-1)], keepdims=0)

    def _once(self, op: str, path: str, inputs: list[str], **attributes: Any) -> str:
        if path in self._made:
            return f"{path}.out"
        self._made.add(path)
        return self._add(op, path, inputs, **attributes)

    def _add(self, op: str, path: str, inputs: list[str], **attributes: Any) -> str:
        self._nodes.append(Node(op, path, inputs, [f"{path}.out"], attributes))
        return self._nodes[-1].outputs[0]

    def _close(self, node: Node) -> None:
        self.new[node.outputs[0]] = self._nodes
        self._nodes = []


def _owner(value: str) -> str:
    """The folder of the node that makes `value`: /layers.0/attn_norm of /layers.0/attn_norm/RMSNormalization.out."""
    return value.rsplit("/", 1)[0]
