"""Gemma 3, text. Owns: its keys, its layer pattern. Needs: keys and dimensions. Never: tensors.

GGUF norm weights already hold the + 1 that Gemma's norms add. The layer pattern and the rotary base of the local layers are
of the architecture (Gemma 3 technical report, section 2: five local layers for each global one, base 10,000 and 1,000,000);
files name them only lately, and what a file names is taken.
"""

from __future__ import annotations

from edge.spec import LayerSpec, ModelSpec
from engines.sources.architectures.layout import Dimensions, refuse_rope_scaling
from engines.sources.keys import Keys

FULL_EVERY = 6
LOCAL_ROPE_BASE = 10_000.0
GLOBAL_ROPE_BASE = 1_000_000.0
LAYERS_OF_27B = 62  # this size alone scales scores by its width per head, not by the head's own width


def read_gemma3(keys: Keys, dims: Dimensions) -> ModelSpec:
    """The spec of a `gemma3` GGUF."""
    refuse_rope_scaling(keys, "gemma3.")
    window = keys.count("gemma3.attention.sliding_window")
    local = LayerSpec(window, keys.real_or("gemma3.rope.freq_base_swa", LOCAL_ROPE_BASE))
    full = LayerSpec(0, keys.real_or("gemma3.rope.freq_base", GLOBAL_ROPE_BASE))
    layers = tuple(local if is_local else full for is_local in _read_pattern(keys, dims.num_layers))
    score_width = dims.hidden_size // dims.num_heads if dims.num_layers == LAYERS_OF_27B else dims.head_dim
    attention_cap = keys.real_or("gemma3.attn_logit_softcapping", 0.0)
    logit_cap = keys.real_or("gemma3.final_logit_softcapping", 0.0)
    keys.refuse_unasked("gemma3.", ("rope.scaling.original_context_length",))
    return ModelSpec(
        name=dims.name,
        architecture=dims.architecture,
        vocab_size=dims.vocab_size,
        hidden_size=dims.hidden_size,
        intermediate_size=dims.intermediate_size,
        num_heads=dims.num_heads,
        num_kv_heads=dims.num_kv_heads,
        head_dim=dims.head_dim,
        layers=layers,
        context_length=dims.context_length,
        norm_epsilon=dims.norm_epsilon,
        activation="gelu_tanh",
        attention_scale=score_width**-0.5,
        embedding_scale=dims.hidden_size**0.5,
        qk_norm=True,
        post_norms=True,
        tied_head=dims.tied_head,
        attention_soft_cap=attention_cap,
        logit_soft_cap=logit_cap,
    )


def _read_pattern(keys: Keys, num_layers: int) -> tuple[bool, ...]:
    """Which layers are local. A file may say it as one number (the last of every n is full) or as a flag for each layer."""
    key = "gemma3.attention.sliding_window_pattern"
    if not keys.is_list(key):
        every = keys.count_or(key, FULL_EVERY)
        return tuple(index % every != every - 1 for index in range(num_layers))
    flags = keys.numbers(key, "b")
    if flags.size != num_layers:
        raise keys.error(key, f"has {flags.size} entries for {num_layers} layers")
    return tuple(bool(flag) for flag in flags)
