"""Llama and its kin (SmolLM, Mistral, TinyLlama ...). Owns: their keys. Needs: keys and dimensions. Never: tensors."""

from __future__ import annotations

from edge.spec import LayerSpec, ModelSpec
from engines.sources.architectures.layout import Dimensions, refuse_rope_scaling
from engines.sources.keys import Keys

HARMLESS = ("rope.scaling.original_context_length", "tensor_data_layout")


def read_llama(keys: Keys, dims: Dimensions) -> ModelSpec:
    """The spec of a `llama` GGUF. Rotary base 10,000 where the file names none, as in the Llama paper."""
    refuse_rope_scaling(keys, "llama.")
    if "llama.expert_count" in keys and keys.index("llama.expert_count", 1 << 16) > 0:
        raise keys.error("llama.expert_count", "mixtures of experts cannot be built yet", "Use a dense model")
    if "llama.expert_used_count" in keys:
        keys.index("llama.expert_used_count", 1 << 16)  # 0 or more of no experts
    window = keys.index("llama.attention.sliding_window", 1 << 31) if "llama.attention.sliding_window" in keys else 0
    layer = LayerSpec(window=window, rope_base=keys.real_or("llama.rope.freq_base", 10000.0))
    keys.refuse_unasked("llama.", HARMLESS)
    return ModelSpec(
        name=dims.name,
        architecture=dims.architecture,
        vocab_size=dims.vocab_size,
        hidden_size=dims.hidden_size,
        intermediate_size=dims.intermediate_size,
        num_heads=dims.num_heads,
        num_kv_heads=dims.num_kv_heads,
        head_dim=dims.head_dim,
        layers=(layer,) * dims.num_layers,
        context_length=dims.context_length,
        norm_epsilon=dims.norm_epsilon,
        activation="silu",
        attention_scale=dims.head_dim**-0.5,
        embedding_scale=1.0,
        qk_norm=False,
        post_norms=False,
        tied_head=dims.tied_head,
    )
