"""The node edge::PagedAttention of TensorRT graphs. Owns: its inputs, attributes, meaning. Needs: the contract. Never: kernels.

One node a layer, read by the ONNX parser as a plugin of that name: version and namespace stand in the node's attributes
`plugin_version` and `plugin_namespace`, because parsers older than 10.10 do not look at its domain (TensorRT CHANGELOG.md). The
other attributes reach the plugin as PluginField of int32 and float32 (onnx-tensorrt onnxOpImporters.cpp, loadFields).

Tokens of all B sequences of a step are packed, T in all; those of sequence b are rows query_start[b] to query_start[b + 1]. Row
r of them stands at position kv_len[b] - (query_start[b + 1] - query_start[b]) + r: kv_len counts the new tokens, as the page
table is the state after the step. The node, in this order,

 1. moves pages: for each row (group, K 0 or V 1, source word, target word) of page_moves with this layer's group it writes this
    layer's part of the source extent, converted, to the target extent. A row whose group is -1 is none: the input has always
    one row or more, because an empty tensor has no address;
 2. norms q and k over each head where q_norm and k_norm are given: x / sqrt(mean(x^2) + epsilon) * weight, float32 inside;
 3. rotates q and k in the half form, angle = float32(position) * inv_freq;
 4. appends k and v to the pages that hold their positions, in fp16;
 5. attends: a query at t sees positions (t - window, t], or [0, t] where window is 0; score = scale q.k, then
    soft_cap tanh(score / soft_cap) where soft_cap is not 0. Which pages it reads sealed is the contract's (DESIGN.md).

`pool` holds the address of the pool on the device, read by the kernels: an alias of input and output would not promise that
TensorRT makes no copy. Nothing that the node writes there is an output, and each layer writes only its own part of an extent.
"""

from __future__ import annotations

DOMAIN = "edge"
OP = "PagedAttention"
VERSION = 1

# Name -> type and shape; the last two only together (`qk_norm`). T tokens, B sequences, P pages at most, M moves, R rows.
INPUTS: dict[str, tuple[str, tuple[int | str, ...]]] = {
    "qkv": ("float16", ("T", "(Hq + 2 Hkv) D")),  # q heads, k heads, v heads
    "query_start": ("int32", ("B + 1",)),
    "kv_len": ("int32", ("B",)),
    "page_table": ("int32", ("groups", "B", "P", 2)),  # contract.page_word, EMPTY
    "page_moves": ("int32", ("M", 4)),
    "pool": ("int64", (1,)),
    "inv_freq": ("float32", ("D / 2",)),
    "q_norm": ("float16", ("D",)),
    "k_norm": ("float16", ("D",)),
}
OUTPUT = ("float16", ("T", "Hq D"))

ATTRIBUTES: dict[str, type] = {
    "group": int,  # layer group: the first index of page_table
    "group_layer": int,  # index of the layer inside its group: its part of an extent
    "group_layers": int,  # layers of the group
    "heads": int,  # Hq
    "kv_heads": int,  # Hkv
    "head_dim": int,  # D
    "window": int,
    "qk_norm": int,  # 1: q_norm and k_norm are given
    "scale": float,
    "soft_cap": float,
    "epsilon": float,
    "plugin_version": str,
    "plugin_namespace": str,
}
