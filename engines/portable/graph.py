"""The portable graph of a decoder. Owns: the order of operators. Needs: ModelSpec, forms of the weights. Never: values, files.

Inputs    input_ids int64 [B, S], position_ids int64 [B, S], write_indices int64 [B], attention_mask bool [B, 1, S, M]
          (True: seen), past_key.i and past_value.i [B, Hkv, M, D]
Outputs   logits [B, S, V] (or [B, 1, V], the last row only), present_key.i and present_value.i [B, Hkv, M, D]
Row j of a cache holds position j: write_indices is the position of a sequence's first new token.

Nodes in order; a node is named by its path, its output is the path with ".out" behind it. `linear` is the form of
weights.py: DequantizeLinear (axis 0, blocked) -> MatMul [-> group_sum, MatMul, Add where W has minima], or MatMul of a dense
matrix, [bias/Add]; a Cast stands behind an initializer whose type is not that of the activations (float16 in a float32 graph).

    /embed        [scales/Cast] DequantizeLinear, Gather (axis 1), Transpose, [minima/...], [Slice], [Mul by embedding_scale]
    /rope.N       Cast, Unsqueeze, Mul by inv_freq, Cos, Sin, [Cos_cast, Sin_cast]   once for each of the spec's ropes
    /mask         Shape, Squeeze, Range, Unsqueeze, LessOrEqual, And                 attention_mask and j <= position
    /window.W     Sub, Greater, And                        once per window: the mask above and j > position - W
    /layers.i
      attn_norm   RMSNormalization
      attn/q_proj linear, Reshape [0, 0, H, D]; attn/q_norm RMSNormalization (qk_norm only); attn/q_proj/Transpose;
                  attn/q_proj/RotaryEmbedding
      attn/k_proj the same
      attn/v_proj linear, Reshape, Transpose
      attn        key/TensorScatter -> present_key.i, value/TensorScatter -> present_value.i, Attention, Transpose, Reshape
      attn/o_proj linear
      attn_post_norm RMSNormalization (post_norms only)
      attn_add    Add
      ffn_norm    RMSNormalization
      ffn         gate_proj linear; activation/Sigmoid, activation/Mul or activation/Gelu (tanh); up_proj linear; Mul;
                  down_proj linear
      ffn_post_norm RMSNormalization (post_norms only)
      ffn_add     Add
    /last_row     Slice (last_row_only)
    /final_norm   RMSNormalization
    /head         linear (tied: the MatMul reads /embed/DequantizeLinear.out), [cap/Div, cap/Tanh, cap/Mul] -> logits

The mask of full layers is not attention_mask itself, although a caller's mask is causal already: TensorRT-RTX 1.7 fails ("more
than one op named attention_mask.1_iota") where several Attention nodes read a graph input as their mask.

Rotary takes cosines computed from inverse frequencies instead of a table of all positions: nothing then limits the positions,
the file stays small, and the angle is float32(position) * inv_freq as transformers computes it. Scaled positions are other
frequencies; channels that do not turn, and layers that see no positions, have frequency 0: cosine 1, sine 0, exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edge.errors import BuildError
from edge.spec import ModelSpec, RopeSpec
from engines.portable.builder import GraphBuilder
from engines.portable.storage import ONNX_TYPES, StoredTensor, node_path
from engines.portable.weights import WeightNodes


class DecoderGraph:
    """Builds the nodes of one model. Use `build`, then take the builder's nodes and constants."""

    def __init__(self, spec: ModelSpec, tensors: Mapping[str, StoredTensor], dtype: str) -> None:
        self.builder = GraphBuilder()
        self._spec = spec
        self._tensors = tensors
        self._dtype = dtype
        self._weights = WeightNodes(self.builder, dtype)

    def build(self, last_row_only: bool) -> None:
        """Emits every node, from input_ids to logits."""
        spec, node = self._spec, self.builder.node
        hidden = self._embed()
        rotary = {rope: self._rotary(rope) for rope in dict.fromkeys(layer.rope for layer in spec.layers)}
        masks = self._masks()
        for index, layer in enumerate(spec.layers):
            hidden = self._layer(index, hidden, masks[layer.window], rotary[layer.rope])
        if last_row_only:
            ints = self.builder.ints
            hidden = node("Slice", "/last_row/Slice", [hidden, ints(-1), ints(2**63 - 1), ints(1)])
        self._head(self._norm(hidden, "final_norm.weight"))

    def _embed(self) -> str:
        rows = self._weights.gather("input_ids", self._tensors["embed.weight"], "/embed")
        if self._spec.embedding_scale == 1.0:
            return rows
        return self.builder.node("Mul", "/embed/Mul", [rows, self._scalar("embedding_scale", self._spec.embedding_scale)])

    def _rotary(self, rope: int) -> tuple[str, str]:
        """Cosines and sines [B, S, D / 2] of the step's positions, for the spec's rope of that index."""
        node, path = self.builder.node, f"/rope.{rope}"
        turning = inverse_frequencies(self._spec.ropes[rope], self._spec.head_dim)
        frequencies = self.builder.constant(f"rope.{rope}.inv_freq", turning)
        positions = node("Cast", f"{path}/Cast", ["position_ids"], to=ONNX_TYPES["float32"])
        positions = node("Unsqueeze", f"{path}/Unsqueeze", [positions, self.builder.ints(2)])
        angles = node("Mul", f"{path}/Mul", [positions, frequencies])
        values = [node(op, f"{path}/{op}", [angles]) for op in ("Cos", "Sin")]
        if self._dtype != "float32":
            to = ONNX_TYPES[self._dtype]
            values = [node("Cast", f"{path}/{op}_cast", [v], to=to) for op, v in zip(("Cos", "Sin"), values, strict=True)]
        return values[0], values[1]

    def _masks(self) -> dict[int, str]:
        """Window -> mask bool [B, 1, S, M]: attention_mask without what is ahead of a query or behind its window."""
        node, ints = self.builder.node, self.builder.ints
        length = node("Shape", "/mask/Shape", ["attention_mask"], start=3, end=4)
        length = node("Squeeze", "/mask/Squeeze", [length, ints(0)])
        zero, one = (self.builder.constant(f"int.{v}", np.array(v, np.int64)) for v in (0, 1))
        keys = node("Range", "/mask/Range", [zero, length, one])
        queries = node("Unsqueeze", "/mask/Unsqueeze", ["position_ids", ints(1, 3)])
        reached = node("LessOrEqual", "/mask/LessOrEqual", [keys, queries])
        masks = {0: node("And", "/mask/And", ["attention_mask", reached])}
        for window in (window for window in self._spec.group_windows if window):
            path = f"/window.{window}"
            behind = node("Sub", f"{path}/Sub", [queries, ints(window)])
            inside = node("Greater", f"{path}/Greater", [keys, behind])
            masks[window] = node("And", f"{path}/And", [masks[0], inside])
        return masks

    def _layer(self, index: int, hidden: str, mask: str, rotary: tuple[str, str]) -> str:
        spec, node, prefix = self._spec, self.builder.node, f"layers.{index}"
        path = f"/{prefix}"
        branch = self._attention(index, self._norm(hidden, f"{prefix}.attn_norm.weight"), mask, rotary)
        if spec.post_norms:
            branch = self._norm(branch, f"{prefix}.attn_post_norm.weight")
        hidden = node("Add", f"{path}/attn_add/Add", [hidden, branch])
        branch = self._feed_forward(prefix, self._norm(hidden, f"{prefix}.ffn_norm.weight"))
        if spec.post_norms:
            branch = self._norm(branch, f"{prefix}.ffn_post_norm.weight")
        return node("Add", f"{path}/ffn_add/Add", [hidden, branch])

    def _attention(self, index: int, x: str, mask: str, rotary: tuple[str, str]) -> str:
        spec, node, ints, path = self._spec, self.builder.node, self.builder.ints, f"/layers.{index}/attn"
        query = self._rotated(index, "q", x, spec.num_heads, rotary)
        key = self._rotated(index, "k", x, spec.num_kv_heads, rotary)
        value = self._projected(index, "v", x)
        value = node("Reshape", f"{path}/v_proj/Reshape", [value, ints(0, 0, spec.num_kv_heads, spec.head_dim)])
        value = node("Transpose", f"{path}/v_proj/Transpose", [value], perm=[0, 2, 1, 3])
        key, value = (
            node("TensorScatter", f"{path}/{kind}/TensorScatter", [f"past_{kind}.{index}", update, "write_indices"],
                 output=f"present_{kind}.{index}", axis=2, mode="linear")
            for kind, update in (("key", key), ("value", value))
        )  # fmt: skip
        caps: dict[str, Any] = {"softcap": spec.attention_soft_cap} if spec.attention_soft_cap else {}
        out = node("Attention", f"{path}/Attention", [query, key, value, mask], scale=spec.attention_scale, is_causal=0, **caps)
        out = node("Transpose", f"{path}/Transpose", [out], perm=[0, 2, 1, 3])
        out = node("Reshape", f"{path}/Reshape", [out, ints(0, 0, spec.num_heads * spec.head_dim)])
        return self._linear(out, f"layers.{index}.attn.o_proj.weight")

    def _rotated(self, index: int, role: str, x: str, heads: int, rotary: tuple[str, str]) -> str:
        """Query or key [B, heads, S, D], normed where the model does so, rotated in the half form."""
        node, path = self.builder.node, f"/layers.{index}/attn/{role}_proj"
        value = self._projected(index, role, x)
        value = node("Reshape", f"{path}/Reshape", [value, self.builder.ints(0, 0, heads, self._spec.head_dim)])
        if self._spec.qk_norm:
            value = self._norm(value, f"layers.{index}.attn.{role}_norm.weight")
        value = node("Transpose", f"{path}/Transpose", [value], perm=[0, 2, 1, 3])
        return node("RotaryEmbedding", f"{path}/RotaryEmbedding", [value, *rotary], interleaved=0)

    def _projected(self, index: int, role: str, x: str) -> str:
        """Query, key or value [B, S, heads D], with its bias where the model has one."""
        name = f"layers.{index}.attn.{role}_proj"
        value = self._linear(x, f"{name}.weight")
        if not self._spec.qkv_bias:
            return value
        return self.builder.node("Add", f"{node_path(name)}/bias/Add", [value, f"{name}.bias"])

    def _feed_forward(self, prefix: str, x: str) -> str:
        node, path = self.builder.node, f"/{prefix}/ffn"
        gate = self._linear(x, f"{prefix}.ffn.gate_proj.weight")
        if self._spec.activation == "silu":
            sigmoid = node("Sigmoid", f"{path}/activation/Sigmoid", [gate])
            gate = node("Mul", f"{path}/activation/Mul", [gate, sigmoid])
        elif self._spec.activation == "gelu_tanh":
            gate = node("Gelu", f"{path}/activation/Gelu", [gate], approximate="tanh")
        else:
            raise BuildError(f"{self._spec.name}: activation {self._spec.activation!r} is not known. Known: silu, gelu_tanh")
        up = self._linear(x, f"{prefix}.ffn.up_proj.weight")
        product = node("Mul", f"{path}/Mul", [gate, up])
        return self._linear(product, f"{prefix}.ffn.down_proj.weight")

    def _head(self, hidden: str) -> None:
        name = "embed.weight" if self._spec.tied_head else "head.weight"
        logits = self._weights.matmul(hidden, self._tensors[name], "/head")
        node = self.builder.node
        if self._spec.logit_soft_cap:
            cap = self._scalar("logit_soft_cap", self._spec.logit_soft_cap)
            logits = node("Div", "/head/cap/Div", [logits, cap])
            logits = node("Tanh", "/head/cap/Tanh", [logits])
            logits = node("Mul", "/head/cap/Mul", [logits, cap])
        self.builder.nodes[-1].output[0] = "logits"

    def _norm(self, x: str, name: str) -> str:
        path = f"{node_path(name)}/RMSNormalization"
        return self.builder.node("RMSNormalization", path, [x, name], axis=-1, epsilon=self._spec.norm_epsilon)

    def _linear(self, x: str, name: str) -> str:
        return self._weights.matmul(x, self._tensors[name], node_path(name))

    def _scalar(self, name: str, value: float) -> str:
        return self.builder.constant(name, np.array(value, self._dtype))


def inverse_frequencies(rope: RopeSpec, head_dim: int) -> np.ndarray:
    """Rotary frequencies of a head's pairs, float32 [D / 2] (RoFormer, arXiv 2104.09864, section 3.2.2; RopeSpec)."""
    frequencies = np.zeros(head_dim // 2, np.float64)
    if rope.dim:
        turning = np.float64(rope.base) ** -(np.arange(0, rope.dim, 2, dtype=np.float64) / rope.dim)
        frequencies[: rope.dim // 2] = turning / (np.array(rope.divisors) if rope.divisors else 1.0)
    return frequencies.astype(np.float32)
