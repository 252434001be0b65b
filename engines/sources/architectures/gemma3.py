"""Gemma 3, text. Owns: its keys, its layer pattern. Needs: keys and dimensions. Never: tensors.

GGUF norm weights already hold the + 1 that Gemma's norms add; folders do not. The layer pattern and the rotary base of the
local layers are of the architecture (Gemma 3 technical report, section 2: five local layers for each global one, base 10,000
and 1,000,000); files name them only lately, and what a file names is taken. Models of 4B and more turn the global layers by an
eighth of the position.
"""

from __future__ import annotations

from edge.spec import LayerSpec, ModelSpec, RopeSpec
from engines.sources.architectures.config_keys import read_activation, read_local_layers, refuse_others
from engines.sources.architectures.dimensions import Dimensions, GgufFile, read_config_dimensions
from engines.sources.architectures.names import GEMMA_FOLDER_NAMES, GGUF_NAMES
from engines.sources.architectures.places import FileForm
from engines.sources.architectures.rotary import read_config_rope, read_gguf_rope
from engines.sources.gguf_header import Value
from engines.sources.keys import Keys

GGUF_FORM = FileForm(GGUF_NAMES)
FOLDER_FORM = FileForm(GEMMA_FOLDER_NAMES, norm_added=1.0)
FULL_EVERY = 6
LOCAL_ROPE_BASE = 10_000.0
GLOBAL_ROPE_BASE = 1_000_000.0
LAYERS_OF_27B = 62  # this size alone scales scores by its width per head, not by the head's own width
# A checkpoint with eyes names of its text part only what differs from these.
_DEFAULTS: dict[str, Value] = {
    "vocab_size": 262_208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131_072, "rms_norm_eps": 1e-6,
    "query_pre_attn_scalar": 256, "sliding_window": 4096, "hidden_activation": "gelu_pytorch_tanh",
}  # fmt: skip


def read_gguf(file: GgufFile) -> ModelSpec:
    """The spec of a `gemma3` GGUF."""
    keys, dims = file.keys, file.dims
    local = RopeSpec(dims.head_dim, keys.real_or("gemma3.rope.freq_base_swa", LOCAL_ROPE_BASE), ())
    full = read_gguf_rope(file, base=GLOBAL_ROPE_BASE)
    window = dims.window(keys.count("gemma3.attention.sliding_window"))
    is_local = _read_pattern(keys, "gemma3.attention.sliding_window_pattern", dims.num_layers)
    score_width = dims.hidden_size // dims.num_heads if dims.num_layers == LAYERS_OF_27B else dims.head_dim
    attention_cap = keys.real_or("gemma3.attn_logit_softcapping", 0.0)
    logit_cap = keys.real_or("gemma3.final_logit_softcapping", 0.0)
    keys.refuse_unasked("gemma3.", ("rope.scaling.original_context_length",))
    return _spec(dims, is_local, window, (local, full), "gelu_tanh", score_width, attention_cap, logit_cap)


def read_config(keys: Keys, name: str, context: int | None) -> ModelSpec:
    """The spec of a folder with model_type `gemma3_text`, or of the text part of one with `gemma3`."""
    at = "text_config." if keys.has_any("text_config.") else ""
    keys = keys.with_defaults(at, _DEFAULTS)
    dims = read_config_dimensions(keys, name, "gemma3", tied=True, prefix=at)
    # rope_theta and rope_scaling are of the global layers. As transformers reads them (Gemma3TextConfig), a part that names no
    # base of its own has that of its layers.
    if keys.has_any(f"{at}rope_parameters.sliding_attention."):
        local = read_config_rope(keys, dims, at, LOCAL_ROPE_BASE, "sliding_attention", base_key="rope_local_base_freq")
    else:
        local = RopeSpec(dims.head_dim, keys.real_or(at + "rope_local_base_freq", LOCAL_ROPE_BASE), ())
    full = read_config_rope(keys, dims, at, GLOBAL_ROPE_BASE, part="full_attention")
    if at + "layer_types" in keys:
        is_local = read_local_layers(keys, at + "layer_types", dims.num_layers)
    else:
        is_local = _read_pattern(keys, at + "sliding_window_pattern", dims.num_layers)
    window = dims.window(keys.count(at + "sliding_window"))
    activation, score_width = read_activation(keys, at + "hidden_activation"), keys.real(at + "query_pre_attn_scalar")
    attention_cap = keys.real_or(at + "attn_logit_softcapping", 0.0)
    logit_cap = keys.real_or(at + "final_logit_softcapping", 0.0)
    # What belongs to the eyes stands outside text_config, and does not touch the text.
    refuse_others(keys, at, harmless=("_sliding_window_pattern", "sliding_window_pattern", "hidden_act"))
    return _spec(dims, is_local, window, (local, full), activation, score_width, attention_cap, logit_cap)


def _spec(
    dims: Dimensions,
    is_local: tuple[bool, ...],
    window: int,
    ropes: tuple[RopeSpec, RopeSpec],
    activation: str,
    score_width: float,
    attention_cap: float,
    logit_cap: float,
) -> ModelSpec:
    """`ropes`: of local layers, of full ones."""
    return dims.spec(
        tuple(LayerSpec(window, 0) if local else LayerSpec(0, 1) for local in is_local),
        ropes,
        activation=activation,
        attention_scale=score_width**-0.5,
        embedding_scale=dims.hidden_size**0.5,
        qk_norm=True,
        post_norms=True,
        attention_soft_cap=attention_cap,
        logit_soft_cap=logit_cap,
    )


def _read_pattern(keys: Keys, key: str, num_layers: int) -> tuple[bool, ...]:
    """Which layers are local. A file may say it as one number (the last of every n is full) or as a flag for each layer."""
    if not keys.is_list(key):
        every = keys.count_or(key, FULL_EVERY)
        return tuple(index % every != every - 1 for index in range(num_layers))
    flags = keys.numbers(key, "b")
    if flags.size != num_layers:
        raise keys.error(key, f"has {flags.size} entries for {num_layers} layers")
    return tuple(bool(flag) for flag in flags)
