"""Gemma 2. Owns: its keys, its layer pattern. Needs: keys and dimensions. Never: tensors.

Every second layer, the first one among them, sees a window (Gemma 2 technical report, section 2). GGUF norm weights already
hold the + 1 that Gemma's norms add; folders do not.
"""

from __future__ import annotations

from edge.spec import LayerSpec, ModelSpec
from engines.sources.architectures.config_keys import read_activation, read_local_layers, refuse_others
from engines.sources.architectures.dimensions import GgufFile, read_config_dimensions
from engines.sources.architectures.names import GEMMA_FOLDER_NAMES, GGUF_NAMES
from engines.sources.architectures.places import FileForm
from engines.sources.architectures.rotary import read_config_rope, read_gguf_rope
from engines.sources.gguf_header import Value
from engines.sources.keys import Keys

GGUF_FORM = FileForm(GGUF_NAMES)
FOLDER_FORM = FileForm(GEMMA_FOLDER_NAMES, norm_added=1.0)
LAYERS_OF_27B = 46  # this size alone scales scores by its width per head, not by the head's own width
_WINDOW, _ATTENTION_CAP, _LOGIT_CAP = 4096, 50.0, 30.0  # where a file does not say it
_DEFAULTS: dict[str, Value] = {
    "head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": _WINDOW, "hidden_activation": "gelu_pytorch_tanh",
    "attn_logit_softcapping": _ATTENTION_CAP, "final_logit_softcapping": _LOGIT_CAP,
}  # fmt: skip


def read_gguf(file: GgufFile) -> ModelSpec:
    """The spec of a `gemma2` GGUF."""
    keys, dims = file.keys, file.dims
    rope = read_gguf_rope(file)
    window = dims.window(keys.count_or("gemma2.attention.sliding_window", _WINDOW))
    score_width = dims.hidden_size // dims.num_heads if dims.num_layers == LAYERS_OF_27B else dims.head_dim
    attention_cap = keys.real_or("gemma2.attn_logit_softcapping", _ATTENTION_CAP)
    logit_cap = keys.real_or("gemma2.final_logit_softcapping", _LOGIT_CAP)
    keys.refuse_unasked("gemma2.", ("rope.scaling.original_context_length",))
    return dims.spec(
        tuple(LayerSpec(0 if index % 2 else window, 0) for index in range(dims.num_layers)),
        (rope,),
        activation="gelu_tanh",
        attention_scale=score_width**-0.5,
        embedding_scale=dims.hidden_size**0.5,
        post_norms=True,
        attention_soft_cap=attention_cap,
        logit_soft_cap=logit_cap,
    )


def read_config(keys: Keys, name: str, context: int | None) -> ModelSpec:
    """The spec of a folder with model_type `gemma2`."""
    keys = keys.with_defaults("", _DEFAULTS)
    dims = read_config_dimensions(keys, name, "gemma2", tied=True)
    rope, activation = read_config_rope(keys, dims), read_activation(keys, "hidden_activation")
    window = dims.window(keys.count("sliding_window")) if "sliding_window" in keys else 0
    is_local = tuple(index % 2 == 0 for index in range(dims.num_layers))
    if "layer_types" in keys:
        is_local = read_local_layers(keys, "layer_types", dims.num_layers)
    score_width = keys.real("query_pre_attn_scalar")
    attention_cap, logit_cap = keys.real_or("attn_logit_softcapping", 0.0), keys.real_or("final_logit_softcapping", 0.0)
    refuse_others(keys, harmless=("hidden_act",))  # Gemma's files name an activation there that it does not use
    return dims.spec(
        tuple(LayerSpec(window if local else 0, 0) for local in is_local),
        (rope,),
        activation=activation,
        attention_scale=score_width**-0.5,
        embedding_scale=dims.hidden_size**0.5,
        post_norms=True,
        attention_soft_cap=attention_cap,
        logit_soft_cap=logit_cap,
    )
