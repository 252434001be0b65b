"""Qwen 2, 2.5 and 3. Owns: their keys, their windows. Needs: keys and dimensions. Never: tensors.

Qwen 2 adds biases to q, k and v, Qwen 3 norms q and k instead.
"""

from __future__ import annotations

from edge.spec import LayerSpec, ModelSpec
from engines.sources.architectures.config_keys import read_activation, read_local_layers, refuse_others
from engines.sources.architectures.dimensions import GgufFile, read_config_dimensions
from engines.sources.architectures.names import FOLDER_NAMES, GGUF_NAMES
from engines.sources.architectures.places import FileForm
from engines.sources.architectures.rotary import read_config_rope, read_gguf_rope
from engines.sources.keys import Keys

GGUF_FORM = FileForm(GGUF_NAMES)
FOLDER_FORM = FileForm(FOLDER_NAMES)
_DEFAULTS = {"qwen2": {"max_window_layers": 28}, "qwen3": {"max_window_layers": 28, "head_dim": 128}}


def read_gguf(file: GgufFile) -> ModelSpec:
    """The spec of a `qwen2` or `qwen3` GGUF. llama.cpp's converter writes no windows, and runs what it wrote without: a model
    that has some (use_sliding_window, which no published Qwen 2, 2.5 or 3 sets) must come as its folder."""
    keys, dims = file.keys, file.dims
    window = f"{dims.architecture}.attention.sliding_window"
    if window in keys and dims.window(keys.count(window)):
        fact = f"is {keys.count(window)}; nothing says which layers have that window"
        raise keys.error(window, fact, "Build from the model's folder, with its config.json")
    rope = read_gguf_rope(file)
    keys.refuse_unasked(dims.architecture + ".", ("rope.scaling.original_context_length",))
    return dims.spec((LayerSpec(0, 0),) * dims.num_layers, (rope,), **_own(dims.architecture))


def read_qwen2_config(keys: Keys, name: str, context: int | None) -> ModelSpec:
    """The spec of a folder with model_type `qwen2`."""
    return _read_config(keys, name, "qwen2")


def read_qwen3_config(keys: Keys, name: str, context: int | None) -> ModelSpec:
    """The spec of a folder with model_type `qwen3`."""
    return _read_config(keys, name, "qwen3")


def _read_config(keys: Keys, name: str, architecture: str) -> ModelSpec:
    keys = keys.with_defaults("", _DEFAULTS[architecture])
    dims = read_config_dimensions(keys, name, architecture, tied=False)
    rope, activation = read_config_rope(keys, dims), read_activation(keys, "hidden_act")
    window = 0
    if keys.flag_or("use_sliding_window", False) and "sliding_window" in keys:
        window = dims.window(keys.count("sliding_window"))
    first_local = keys.index("max_window_layers", 1 << 31)  # layers before it see everything
    is_local = tuple(index >= first_local for index in range(dims.num_layers))
    if "layer_types" in keys:
        is_local = read_local_layers(keys, "layer_types", dims.num_layers)
    refuse_others(keys, harmless=("sliding_window",))
    layers = tuple(LayerSpec(window if local else 0, 0) for local in is_local)
    return dims.spec(layers, (rope,), activation=activation, **_own(architecture))


def _own(architecture: str) -> dict[str, bool]:
    return {"qkv_bias": architecture == "qwen2", "qk_norm": architecture == "qwen3"}
