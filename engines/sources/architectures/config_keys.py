"""What all config.json files may say. Owns: shared checks, keys that change no arithmetic. Needs: keys. Never: sizes."""

from __future__ import annotations

from engines.sources.keys import Keys

# Names of activations in transformers -> ours.
_ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}

# Records of how a file came to be, training, generation, other heads than the language model's, and parts of PreTrainedConfig
# that say what a call returns. Of a key with parts, its name.
_HARMLESS = (
    "_attn_implementation", "_attn_implementation_autoset", "_name_or_path", "architectures", "attention_dropout",
    "attn_implementation", "auto_map", "bad_words_ids", "begin_suppress_tokens", "bos_token_id", "cache_implementation",
    "chunk_size_feed_forward", "decoder_start_token_id", "diversity_penalty", "do_sample", "dtype", "early_stopping",
    "embd_pdrop", "encoder_no_repeat_ngram_size", "eos_token_id", "exponential_decay_length_penalty", "finetuning_task",
    "forced_bos_token_id", "forced_eos_token_id", "id2label", "initializer_range", "is_decoder", "is_llama_config",
    "label2id", "length_penalty", "max_length", "min_length", "model_type", "no_repeat_ngram_size", "num_beam_groups",
    "num_beams", "num_return_sequences", "output_attentions", "output_hidden_states", "output_scores", "pad_token_id",
    "prefix", "pretraining_tp", "problem_type", "pruned_heads", "remove_invalid_values", "repetition_penalty",
    "resid_pdrop", "return_dict", "return_dict_in_generate", "sep_token_id", "suppress_tokens", "task_specific_params",
    "temperature", "tf_legacy_loss", "tie_encoder_decoder", "tokenizer_class", "top_k", "top_p", "torch_dtype",
    "torchscript", "transformers.js_config", "transformers_version", "typical_p", "unsloth_fixed", "unsloth_version",
    "use_bfloat16", "use_cache",
)  # fmt: skip
# Parts that none of our graphs has; where they are off, nothing is missing.
_SWITCHES = (
    "attention_bias", "mlp_bias", "lm_head_bias", "rope_interleaved", "use_mrope", "add_cross_attention", "is_encoder_decoder",
    "use_bidirectional_attention",
)  # fmt: skip


def read_activation(keys: Keys, *names: str) -> str:
    """The activation under the first of the key `names` that is there."""
    key = next((name for name in names if name in keys), names[0])
    name = keys.text(key)
    if name not in _ACTIVATIONS:
        raise keys.error(key, f"is {name!r}; known are {', '.join(_ACTIVATIONS)}", "Use another model")
    return _ACTIVATIONS[name]


def read_local_layers(keys: Keys, key: str, num_layers: int) -> tuple[bool, ...]:
    """For each layer whether it attends through a window, from the key `key` with full_attention or sliding_attention."""
    kinds = keys.texts(key)
    if len(kinds) != num_layers:
        raise keys.error(key, f"has {len(kinds)} entries for {num_layers} layers")
    odd = next((kind for kind in kinds if kind not in ("full_attention", "sliding_attention")), None)
    if odd is not None:
        raise keys.error(key, f"names {odd!r}; known are full_attention and sliding_attention", "Use another model")
    return tuple(kind == "sliding_attention" for kind in kinds)


def refuse_others(keys: Keys, prefix: str = "", harmless: tuple[str, ...] = ()) -> None:
    """SourceError where a part that we do not build is switched on, or a key stands that nobody read and nobody knows."""
    for name in _SWITCHES:
        if prefix + name in keys and keys.flag(prefix + name):
            raise keys.error(prefix + name, "is true, which cannot be built yet", "Use another model")
    keys.refuse_unasked(prefix, (*_HARMLESS, *harmless))
