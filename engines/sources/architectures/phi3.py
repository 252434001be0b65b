"""Phi-3, Phi-3.5 and Phi-4-mini. Owns: their keys, which set of longrope holds. Needs: keys and dimensions. Never: tensors.

q, k and v are one matrix in the files, gate and up another. A part of each head may turn only (Phi-4-mini: 96 of 128 channels).
"""

from __future__ import annotations

from dataclasses import replace

from edge.spec import LayerSpec, ModelSpec, RopeSpec
from engines.sources.architectures.config_keys import read_activation, refuse_others
from engines.sources.architectures.dimensions import Dimensions, GgufFile, read_config_dimensions
from engines.sources.architectures.names import FOLDER_NAMES, GGUF_NAMES
from engines.sources.architectures.places import FileForm
from engines.sources.architectures.rotary import (
    DEFAULT_BASE,
    LONG_FACTORS,
    ROPE_FREQS,
    SHORT_FACTORS,
    LongRope,
    check_divisors,
    magnitude,
    refuse_vectors,
    scaling_section,
)
from engines.sources.keys import Keys

_QKV, _GATE_UP = "self_attn.qkv_proj.weight", "mlp.gate_up_proj.weight"
FOLDER_FORM = FileForm(
    FOLDER_NAMES
    | {f"layers.attn.{role}_proj.weight": f"model.layers.{{}}.{_QKV}" for role in "qkv"}
    | {f"layers.ffn.{role}_proj.weight": f"model.layers.{{}}.{_GATE_UP}" for role in ("gate", "up")}
)
GGUF_FORM = FileForm(
    GGUF_NAMES
    | {f"layers.attn.{role}_proj.weight": "blk.{}.attn_qkv.weight" for role in "qkv"}
    | {f"layers.ffn.{role}_proj.weight": "blk.{}.ffn_up.weight" for role in ("gate", "up")}
)
_LONG_ROPES = ("longrope", "su")  # its first name
_ONES = ("full_attn_mod", "interpolate_factor")  # of Phi-4-mini's own code


def read_gguf(file: GgufFile) -> ModelSpec:
    """The spec of a `phi3` GGUF."""
    keys, dims = file.keys, file.dims
    turned = keys.count_or("phi3.rope.dimension_count", dims.head_dim)
    rope = RopeSpec(turned, keys.real_or("phi3.rope.freq_base", DEFAULT_BASE), ())
    original = keys.count_or("phi3.rope.scaling.original_context_length", dims.context_length)
    window = keys.index("phi3.attention.sliding_window", 1 << 31) if "phi3.attention.sliding_window" in keys else 0
    kind = keys.text_or("phi3.rope.scaling.type", "longrope")
    if kind not in ("none", *_LONG_ROPES):
        raise keys.error(
            "phi3.rope.scaling.type", f"scaled rotary positions of kind {kind} cannot be built yet", "Use another model"
        )
    short, long = file.vectors.get(SHORT_FACTORS, ()), file.vectors.get(LONG_FACTORS, ())
    refuse_vectors(file, ROPE_FREQS)
    grown = keys.real_or("phi3.rope.scaling.attn_factor", 1.0)
    keys.refuse_unasked("phi3.", ())
    if bool(short) != bool(long):
        raise keys.error(SHORT_FACTORS if long else LONG_FACTORS, "is missing")
    check_divisors(keys, SHORT_FACTORS, short, turned)
    check_divisors(keys, LONG_FACTORS, long, turned)
    stretched = LongRope(short, long, original, grown) if short else None
    return _spec(keys, dims, rope, stretched, window, file.context, "silu")


def read_config(keys: Keys, name: str, context: int | None) -> ModelSpec:
    """The spec of a folder with model_type `phi3`."""
    dims = read_config_dimensions(keys, name, "phi3", tied=False)
    inside = scaling_section(keys, "")
    partial = keys.real_or(inside + "partial_rotary_factor", keys.real_or("partial_rotary_factor", 1.0))
    base = keys.real_or(inside + "rope_theta", keys.real_or("rope_theta", DEFAULT_BASE))
    rope = RopeSpec(int(dims.head_dim * partial), base, ())
    activation = read_activation(keys, "hidden_act")
    window = keys.count("sliding_window") if "sliding_window" in keys else 0
    kind = keys.text_or(inside + "rope_type", keys.text_or(inside + "type", "default"))
    stretched = None
    if kind in _LONG_ROPES:
        stretched = _read_long_rope(keys, inside, dims, rope.dim)
    elif kind != "default":
        raise keys.error(
            inside + "rope_type", f"scaled rotary positions of kind {kind} cannot be built yet", "Use another model"
        )
    for key in _ONES:
        if keys.count_or(key, 1) != 1:
            raise keys.error(key, f"is {keys.count(key)}; only 1, which changes nothing, can be built", "Use another model")
    refuse_others(keys, harmless=("original_max_position_embeddings",))
    return _spec(keys, dims, rope, stretched, window, context, activation)


def _read_long_rope(keys: Keys, inside: str, dims: Dimensions, turned: int) -> LongRope:
    # Files have it outside, inside, or both; transformers takes the outer one then.
    original = keys.count_or(inside + "original_max_position_embeddings", dims.context_length)
    original = keys.count_or("original_max_position_embeddings", original)
    if original == 1:
        raise keys.error("original_max_position_embeddings", "is 1; long-rope divides by its logarithm")
    short, long = (_read_factors(keys, inside + key, turned) for key in ("short_factor", "long_factor"))
    stretch = keys.real_or(inside + "factor", dims.context_length / original)
    return LongRope(short, long, original, keys.real_or(inside + "attention_factor", magnitude(stretch, original)))


def _read_factors(keys: Keys, key: str, turned: int) -> tuple[float, ...]:
    factors = tuple(float(factor) for factor in keys.numbers(key, "iuf"))
    if not factors:
        raise keys.error(key, "is missing")
    check_divisors(keys, key, factors, turned)
    return factors


def _spec(
    keys: Keys, dims: Dimensions, rope: RopeSpec, stretched: LongRope | None, window: int, context: int | None, activation: str
) -> ModelSpec:
    if stretched is None:
        return dims.spec((LayerSpec(dims.window(window), 0),) * dims.num_layers, (rope,), activation=activation)
    is_short = min(context or dims.context_length, dims.context_length) <= stretched.original
    rope = replace(rope, divisors=stretched.short if is_short else stretched.long)
    scale = dims.head_dim**-0.5
    # q.k grows with the square where whole heads turn; else only the channels of q that do can take it.
    if rope.dim == dims.head_dim:
        scale *= stretched.magnitude**2
    else:
        rope = replace(rope, q_scale=stretched.magnitude**2)
    if is_short:
        dims = replace(dims, context_length=min(dims.context_length, stretched.original))
    layer = LayerSpec(dims.window(window), 0)
    return dims.spec((layer,) * dims.num_layers, (rope,), activation=activation, attention_scale=scale)
