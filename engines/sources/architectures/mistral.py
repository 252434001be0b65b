"""Mistral from a folder; its GGUF files call themselves llama. Owns: its keys. Needs: keys and dimensions. Never: tensors."""

from __future__ import annotations

from edge.spec import LayerSpec, ModelSpec
from engines.sources.architectures.config_keys import read_activation, refuse_others
from engines.sources.architectures.dimensions import read_config_dimensions
from engines.sources.architectures.names import FOLDER_NAMES
from engines.sources.architectures.places import FileForm
from engines.sources.architectures.rotary import read_config_rope
from engines.sources.keys import Keys

FOLDER_FORM = FileForm(FOLDER_NAMES)
_DEFAULTS = {"num_key_value_heads": 8, "sliding_window": 4096}


def read_config(keys: Keys, name: str, context: int | None) -> ModelSpec:
    """The spec of a folder with model_type `mistral`. Every layer has the window that the file names, or none."""
    keys = keys.with_defaults("", _DEFAULTS)
    dims = read_config_dimensions(keys, name, "mistral", tied=False)
    rope, activation = read_config_rope(keys, dims), read_activation(keys, "hidden_act")
    window = dims.window(keys.count("sliding_window")) if "sliding_window" in keys else 0
    refuse_others(keys)
    return dims.spec((LayerSpec(window, 0),) * dims.num_layers, (rope,), activation=activation)
