"""The contract between the runtime, the engines and the kernels: names, order, dtypes, shapes, byte layouts.

Owns: every number that Python and native code must agree on. Needs: nothing but the standard library, so that the
build can run it before anything is installed. Never: behaviour.

`python edge/contract.py > contract.h` writes the C++ header; the native build does so itself.
"""

from __future__ import annotations

import sys

INTERFACE = 2  # of edge._core (edge/_core.pyi): a core that was built with another number is not used
VERSION = 3  # 2: `bias` of `project`; 3: sealed pages, and page moves between formats

# --- pages ------------------------------------------------------------------------------------------------------
PAGE_TOKENS = 32  # tokens of one layer group in a page
SEAL_TOKENS = 128  # absolute seal border; no prefill chunk of a sequence crosses one
BLOCK_TOKENS = 128  # attention is reduced in blocks of this many positions, merged in ascending order
OFFSET_UNIT = 256  # bytes; a page-table word holds offset / OFFSET_UNIT
FORMAT_SHIFT = 28  # bits 28 to 30 of a page-table word
OFFSET_MASK = (1 << FORMAT_SHIFT) - 1
EMPTY = -1

# Page formats. An extent is [layers of the group][Hkv] parts, one a kv head, each of `part_bytes`, so that whoever reads a head
# reads one stream. A part of fp16 is K [D][32 tokens], V [32 tokens][D]: a lane is a token for scores and a channel for values.
# A sealed part of w bits keeps N = 32 / w values in a word of 32 bits:
#   K  words [D / N][32 tokens], N consecutive channels a word; scales fp16 [D]; minima fp16 [D]
#   V  words [32 / N][D], N consecutive tokens a word; scales fp16 [G][32 tokens]; minima fp16 [G][32 tokens];
#      G groups of VALUE_GROUPS consecutive channels, the last one possibly of fewer
# Value 2p of a word lies in bits w*p.. of its low half, value 2p + 1 in bits w*p.. of its high half: word >> w*p, masked, is a
# pair of int16. x = minimum + scale * value, values 0 .. 2^w - 1.
PAGE_FORMATS = {"fp16": 0, "int8": 1, "int4": 2, "int2": 3}
FORMAT_BITS = {"fp16": 16, "int8": 8, "int4": 4, "int2": 2}
VALUE_GROUPS = {"int8": 64, "int4": 64, "int2": 32}  # channels of a token's V that share a scale and a minimum
PART_ALIGN = 64  # bytes

# Page moves: rows (layer group, 0 K or 1 V, source word, target word) of int32, out of place: every layer does its part before
# it appends, the page table is the state behind them. fp16 -> sealed seals, sealed -> the next format with fewer bits demotes,
# a format -> itself compacts:
#   seal    lo, hi: smallest and largest of a channel of K over the 32 tokens, of a token's group of V. minimum = fp16(lo), no
#           -0; spread = max(0, hi - minimum); scale = fp16(spread / (2^w - 1)), the next larger half where that times 2^w - 1
#           is below spread; value = round_to_even(clamp((x - minimum) / scale, 0, 2^w - 1)), 0 where scale is 0. All in fp32
#   demote  K int8 -> int4: value >> 4, minimum = fp16(minimum + 7.5 * scale), scale = fp16(16 * scale);
#           V: sealed again from x = fma(scale, value, minimum)
PAGE_MOVES = {"fp16": ("fp16", "int8", "int4", "int2"), "int8": ("int8", "int4"), "int4": ("int4", "int2"), "int2": ("int2",)}

# Which form a query at position t reads: pages that end at or before SEAL_TOKENS * (t // SEAL_TOKENS - 1) sealed, where the
# preset seals; page 0 and all later ones in fp16. Pages that a step writes are fp16.

# Attention mass: of a step's last rows of a sequence, WATCH_ROWS at most, what each gives to a page, a share of its softmax in
# units of 1 / MASS_STEPS, rounded, and summed over rows, query heads and the layers of a group. Whole numbers, so that no order
# of summing, no chunk and no neighbour shows.
WATCH_ROWS = 64
MASS_STEPS = 1 << 18

# --- weights ----------------------------------------------------------------------------------------------------
# One layout for every CPU. A matrix [N outputs, K inputs] is cut into strips of 16 outputs; N is padded to 16 and K to
# 32 with zeros. A strip is three sections, each starting on 64 bytes, in this order:
#   quants  int4: per 32 inputs 4 x 64 bytes; byte 64*j + 4*o + i of them holds input 4*j+i of output o in its low nibble
#                 and input 16+4*j+i in its high nibble (j 0..3, o 0..15, i 0..3); values 0..15
#           int8: per 32 inputs 8 x 64 bytes; byte 64*j + 4*o + i holds input 4*j+i of output o (j 0..7) as an unsigned
#                 byte: q + 128 where the matrix has no minima, q (0..255) where it has
#           fp16: [K][16 outputs], no other section
#   scales  fp16 [K / group][16 outputs]
#   minima  fp16 [K / group][16 outputs], only where the matrix has minima
# W = scale * (quant - zero) without minima (zero 8 for int4, 128 for int8), W = scale * quant + minimum with them.
STRIP = 16  # outputs
STEP = 32  # inputs: K is padded to this; activations are quantised per STEP
ALIGN = 64  # bytes between the sections of a strip
WEIGHT_ALIGN = 4096  # bytes: every tensor of a weight file starts on a page
WEIGHT_KINDS = {"fp32": 0, "fp16": 1, "int8": 2, "int4": 3}  # fp32 is for vectors (norm weights): plain [N]

# --- steps of a CPU plan ----------------------------------------------------------------------------------------
# The residual stream is h fp32 [T, H]. Buffers are fp32 [T, width].
OPS = {
    "embed": 1,  # h = table[token] * scale
    "project": 2,  # qkv = W [rms_norm(h)] + bias?; weights: up to three matrices, their outputs side by side
    "attend": 3,  # att = attention(rotary(qkv)) over pages; q/k norm where given
    "add": 4,  # h += post_norm?(W [att or ffn])
    "gated": 5,  # ffn = activation(W0 [rms_norm(h)]) * (W1 [rms_norm(h)])
    "head": 6,  # logits = soft_cap?(W [rms_norm(h)]) for the asked rows
}
INPUTS = {"hidden": 0, "attention": 1, "feed_forward": 2}
ACTIVATIONS = {"none": 0, "silu": 1, "gelu_tanh": 2}
NO_TENSOR = -1

# Fields of one step, in order: name -> C type. Tensor fields are indices into the plan's tensor list, or NO_TENSOR.
OP_FIELDS = {
    "code": "int32_t",  # OPS
    "input": "int32_t",  # INPUTS, read by `add`
    "weight0": "int32_t",
    "weight1": "int32_t",
    "weight2": "int32_t",
    "bias": "int32_t",  # project: fp32 [(Hq + 2 Hkv) * D], of q, k and v side by side, or NO_TENSOR
    "norm": "int32_t",  # rms norm weight in front
    "post_norm": "int32_t",  # rms norm weight behind, before the residual is added
    "q_norm": "int32_t",  # rms norm weight per head
    "k_norm": "int32_t",
    "inv_freq": "int32_t",  # rotary inverse frequencies, fp32 [D / 2], half-rotation form
    "activation": "int32_t",  # ACTIVATIONS
    "group": "int32_t",  # layer group
    "group_layer": "int32_t",  # index of the layer inside its group
    "window": "int32_t",  # a query at t sees (t - window, t]; 0: all
    "epsilon": "float",  # of the norms
    "scale": "float",  # embed: factor; attend: factor on q.k
    "soft_cap": "float",  # attend: on scores; head: on logits; 0: none
}


_SAMPLE_DIMS = (2, 6, 8, 16, 40, 64, 72, 80, 96, 128, 256, 264)  # at which the header says what `part_bytes` gives


def page_word(page_format: int, offset_bytes: int) -> int:
    """The int32 page-table word of an extent: `page_format` from PAGE_FORMATS, offset in the pool a multiple of 256."""
    assert offset_bytes % OFFSET_UNIT == 0 and 0 <= offset_bytes // OFFSET_UNIT <= OFFSET_MASK
    return page_format << FORMAT_SHIFT | offset_bytes // OFFSET_UNIT


def word_offset(word: int) -> int:
    """Byte offset in the pool of a page-table word that is not EMPTY."""
    return (word & OFFSET_MASK) * OFFSET_UNIT


def can_hold(is_value: bool, page_format: str, head_dim: int) -> bool:
    """Whether K (or V) of heads of `head_dim` can be kept in `page_format`: whole words and groups. Of K there is no int2."""
    if page_format == "fp16":
        return True
    return head_dim % (32 if page_format == "int2" else 8) == 0 and (is_value or page_format != "int2")


def part_bytes(is_value: bool, page_format: str, head_dim: int) -> int:
    """Bytes of one kv head's part of an extent of K (or V), one layer; `can_hold` must allow it."""
    assert can_hold(is_value, page_format, head_dim), (is_value, page_format, head_dim)
    size = PAGE_TOKENS * head_dim * FORMAT_BITS[page_format] // 8
    if page_format != "fp16":
        scales = PAGE_TOKENS * -(-head_dim // VALUE_GROUPS[page_format]) if is_value else head_dim
        size += 2 * 2 * scales
    return -(-size // PART_ALIGN) * PART_ALIGN


def extent_bytes(is_value: bool, page_format: str, layers: int, kv_heads: int, head_dim: int) -> int:
    """Bytes of the K (or V) of one page of a layer group of so many layers: a multiple of OFFSET_UNIT."""
    size = layers * kv_heads * part_bytes(is_value, page_format, head_dim)
    return -(-size // OFFSET_UNIT) * OFFSET_UNIT


def header() -> str:
    """The C++ header that the native code is compiled with."""
    lines = ["// Generated from edge/contract.py. Do not edit.", "#pragma once", "#include <cstdint>", "namespace edge {"]
    for name in ("VERSION", "INTERFACE", "PAGE_TOKENS", "SEAL_TOKENS", "BLOCK_TOKENS", "OFFSET_UNIT", "FORMAT_SHIFT",
                 "OFFSET_MASK", "EMPTY", "WATCH_ROWS", "MASS_STEPS", "PART_ALIGN", "STRIP", "STEP", "ALIGN", "WEIGHT_ALIGN",
                 "NO_TENSOR"):  # fmt: skip
        lines.append(f"constexpr int32_t {name} = {globals()[name]};")
    enums = {"PageFormat": PAGE_FORMATS, "WeightKind": WEIGHT_KINDS, "OpCode": OPS, "Input": INPUTS, "Activation": ACTIVATIONS}
    for enum, members in enums.items():
        body = ", ".join(f"{name} = {value}" for name, value in members.items())
        lines.append(f"namespace {enum} {{ enum : int32_t {{ {body} }}; }}")
    bits = ", ".join(str(FORMAT_BITS[name]) for name in PAGE_FORMATS)
    groups = ", ".join(str(VALUE_GROUPS.get(name, 0)) for name in PAGE_FORMATS)
    targets = ", ".join(str(sum(1 << PAGE_FORMATS[to] for to in PAGE_MOVES[name])) for name in PAGE_FORMATS)
    lines.append(f"constexpr int32_t FORMAT_BITS[] = {{{bits}}}, VALUE_GROUPS[] = {{{groups}}};")
    lines.append(f"constexpr int32_t MOVE_TARGETS[] = {{{targets}}};  // by source format: a bit a format")
    lines.append("struct PartSample { int32_t side, format, head_dim, bytes; };  // bytes 0: cannot be held")
    lines.append("constexpr PartSample PART_SAMPLES[] = {")
    for name, value in PAGE_FORMATS.items():
        for side in (0, 1):
            sizes = [(dim, part_bytes(bool(side), name, dim) if can_hold(bool(side), name, dim) else 0) for dim in _SAMPLE_DIMS]
            lines.append("  " + " ".join(f"{{{side}, {value}, {dim}, {size}}}," for dim, size in sizes))
    lines.append("};")
    lines.append("struct Op {")
    lines += [f"  {kind} {name};" for name, kind in OP_FIELDS.items()]
    lines += ["};", "}  // namespace edge", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(header())
