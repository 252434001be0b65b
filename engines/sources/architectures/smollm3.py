"""SmolLM3: a Llama of which every fourth layer sees no positions. Owns: its keys, those layers. Needs: keys and dimensions.
Never: tensors."""

from __future__ import annotations

import numpy as np

from edge.spec import LayerSpec, ModelSpec
from engines.sources.architectures.config_keys import read_activation, read_local_layers, refuse_others
from engines.sources.architectures.dimensions import GgufFile, read_config_dimensions
from engines.sources.architectures.names import FOLDER_NAMES, GGUF_NAMES
from engines.sources.architectures.places import FileForm
from engines.sources.architectures.rotary import NO_ROPE, read_config_rope, read_gguf_rope
from engines.sources.keys import Keys

GGUF_FORM = FileForm(GGUF_NAMES, interleaved=True)
FOLDER_FORM = FileForm(FOLDER_NAMES)
NO_ROPE_EVERY = 4  # a GGUF does not say it; llama.cpp has it as a number, too
ROPE_BASE = 2_000_000.0  # where a file does not say it
_ROPE, _NO_ROPE = 0, 1  # places in the spec's ropes


def read_gguf(file: GgufFile) -> ModelSpec:
    """The spec of a `smollm3` GGUF."""
    keys, dims = file.keys, file.dims
    rope = read_gguf_rope(file, base=ROPE_BASE)
    keys.refuse_unasked("smollm3.", ("rope.scaling.original_context_length",))
    layers = tuple(LayerSpec(0, _rope_of(index, NO_ROPE_EVERY)) for index in range(dims.num_layers))
    return dims.spec(layers, (rope, NO_ROPE))


def read_config(keys: Keys, name: str, context: int | None) -> ModelSpec:
    """The spec of a folder with model_type `smollm3`."""
    dims = read_config_dimensions(keys, name, "smollm3", tied=True)
    rope, activation = read_config_rope(keys, dims, base=ROPE_BASE), read_activation(keys, "hidden_act")
    every = keys.count_or("no_rope_layer_interval", NO_ROPE_EVERY)
    ropes = tuple(_rope_of(index, every) for index in range(dims.num_layers))
    if "no_rope_layers" in keys:  # 1 for a layer that has rotary, against its name
        ropes = tuple(_ROPE if flag else _NO_ROPE for flag in _flags(keys, "no_rope_layers", dims.num_layers))
    window = 0
    if keys.flag_or("use_sliding_window", False) and "sliding_window" in keys:
        window = dims.window(keys.count("sliding_window"))
    is_local = tuple(rope == _NO_ROPE for rope in ropes)
    if "layer_types" in keys:
        is_local = read_local_layers(keys, "layer_types", dims.num_layers)
    refuse_others(keys, harmless=("sliding_window", "max_window_layers"))
    layers = tuple(LayerSpec(window if local else 0, rope) for local, rope in zip(is_local, ropes, strict=True))
    return dims.spec(layers, (rope, NO_ROPE), activation=activation)


def _rope_of(index: int, every: int) -> int:
    return _NO_ROPE if index % every == every - 1 else _ROPE


def _flags(keys: Keys, key: str, num_layers: int) -> np.ndarray:
    flags = keys.numbers(key, "iu")
    if flags.size != num_layers or not np.isin(flags, (0, 1)).all():
        raise keys.error(key, f"is not a list of {num_layers} times 0 or 1")
    return flags
