"""Llama and its kin (SmolLM, TinyLlama; as GGUF Mistral too). Owns: their keys. Needs: keys and dimensions. Never: tensors."""

from __future__ import annotations

from edge.spec import LayerSpec, ModelSpec
from engines.sources.architectures.config_keys import read_activation, refuse_others
from engines.sources.architectures.dimensions import GgufFile, read_config_dimensions
from engines.sources.architectures.names import FOLDER_NAMES, GGUF_NAMES
from engines.sources.architectures.places import FileForm
from engines.sources.architectures.rotary import read_config_rope, read_gguf_rope
from engines.sources.keys import Keys

GGUF_FORM = FileForm(GGUF_NAMES, interleaved=True)
FOLDER_FORM = FileForm(FOLDER_NAMES)


def read_gguf(file: GgufFile) -> ModelSpec:
    """The spec of a `llama` GGUF."""
    keys, dims = file.keys, file.dims
    rope = read_gguf_rope(file)
    if "llama.expert_count" in keys and keys.index("llama.expert_count", 1 << 16) > 0:
        raise keys.error("llama.expert_count", "mixtures of experts cannot be built yet", "Use a dense model")
    if "llama.expert_used_count" in keys:
        keys.index("llama.expert_used_count", 1 << 16)  # 0 or more of no experts
    window = keys.index("llama.attention.sliding_window", 1 << 31) if "llama.attention.sliding_window" in keys else 0
    keys.refuse_unasked("llama.", ("rope.scaling.original_context_length", "tensor_data_layout"))
    return dims.spec((LayerSpec(dims.window(window), 0),) * dims.num_layers, (rope,))


def read_config(keys: Keys, name: str, context: int | None) -> ModelSpec:
    """The spec of a folder with model_type `llama`."""
    dims = read_config_dimensions(keys, name, "llama", tied=False)
    rope, activation = read_config_rope(keys, dims), read_activation(keys, "hidden_act")
    refuse_others(keys)
    return dims.spec((LayerSpec(0, 0),) * dims.num_layers, (rope,), activation=activation)
