"""The tiny models of each family: as a Source, and as a GGUF file. Owns: FAMILIES, FolderSource, write_family_folder,
write_family_gguf.

The GGUF is what a converter would make of the folder: q and k rows interleaved where llama.cpp turns neighbours, Gemma's norms
with their + 1, Phi's stacked matrices as they are, factors of frequencies as tensors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import vocabulary
from model_folders import write_folder

from edge.spec import ModelSpec
from engines.sources.architectures import CONFIG_READERS, folder_places
from engines.sources.base import SourceMetadata, SourceTensor, TokenizerParts
from engines.sources.keys import Keys

FOLDER = Path(__file__).resolve().parent.parent / "fixtures" / "architectures"
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "phi3", "phi3_partial", "smollm3", "gemma2", "gemma3")
TOKENIZER_ROWS = 448  # no fewer than the tokenizer of write_folder has tokens
ORIGINAL = 32  # context of the Phi models before it was stretched

_NO_TOKENIZER = TokenizerParts("gpt2", "default", (), (), (), (), {}, {}, "")


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """Every tensor of a bfloat16 safetensors file as float32."""
    raw = path.read_bytes()
    begin = 8 + int.from_bytes(raw[:8], "little")
    tensors = {}
    for name, entry in json.loads(raw[8:begin]).items():
        if name != "__metadata__":
            assert entry["dtype"] == "BF16"
            first, end = (begin + offset for offset in entry["data_offsets"])
            halves = np.frombuffer(raw[first:end], "<u2").astype(np.uint32) << 16
            tensors[name] = halves.view(np.float32).reshape(entry["shape"])
    return tensors


def config_keys(config: dict[str, Any]) -> Keys:
    """A config.json, nested keys joined by dots."""
    flat = dict(_flattened(config, ""))
    return Keys(
        Path("config.json"),
        {key: value for key, value in flat.items() if value is not None},
        [key for key, value in flat.items() if value is None],
    )


def read_config(name: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((FOLDER / name / "config.json").read_text(encoding="utf-8"))
    return config


def read_prompts(name: str) -> Iterator[tuple[list[int], np.ndarray]]:
    """(ids, logits float32 [16, V] of the last rows) of each prompt, as transformers computes them in float32."""
    with np.load(FOLDER / name / "logits.npz") as arrays:
        for index in range(len(arrays) // 2):
            yield arrays[f"ids_{index}"].tolist(), arrays[f"logits_{index}"]


class FolderSource:
    """A family's folder as a Source without a tokenizer."""

    def __init__(self, name: str, context: int | None = None) -> None:
        keys = config_keys(read_config(name))
        self.spec: ModelSpec = CONFIG_READERS[keys.text("model_type")](keys, name, context)
        self.spec.check()
        self.metadata = SourceMetadata(FOLDER / name, name, "", "", _NO_TOKENIZER, ())
        self._places = folder_places(self.spec)
        self._tensors = read_tensors(FOLDER / name / "model.safetensors")
        assert {place.file_name for place in self._places.values()} == set(self._tensors)

    def tensor_names(self) -> tuple[str, ...]:
        return tuple(self._places)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._places[name].shape

    def read(self, name: str) -> SourceTensor:
        return self.read_rows(name, 0, self.shape(name)[0])

    def read_rows(self, name: str, begin: int, end: int) -> SourceTensor:
        place = self._places[name]
        values = self._tensors[place.file_name]
        assert values.shape == place.file_shape, name
        return SourceTensor(name, place.finish(values[place.file_rows(begin, end)], begin), "BF16", "", 0.0)

    def read_exact(self, name: str, begin: int, end: int) -> np.ndarray:
        return self.read_rows(name, begin, end).to_float32()


def write_family_folder(name: str, folder: Path) -> Path:
    """The folder of `name` with a tokenizer, and random rows of the embedding and the head for the tokens that it has more."""
    config, tensors = read_config(name), read_tensors(FOLDER / name / "model.safetensors")
    drawn = np.random.default_rng(7)
    for table in ("model.embed_tokens.weight", "lm_head.weight"):
        if table in tensors:
            more = 0.2 * drawn.standard_normal((TOKENIZER_ROWS - config["vocab_size"], config["hidden_size"]))
            tensors[table] = np.concatenate([tensors[table], more.astype(np.float32)])
    return write_folder(folder, config | {"vocab_size": TOKENIZER_ROWS}, tensors, dtype="BF16", shards=2)


def write_family_gguf(name: str, path: Path, type_name: str = "F32") -> Path:
    """The folder of `name` converted to a GGUF file, with the byte-level vocabulary of the tiny models. Matrices are of
    `type_name` where their rows are whole blocks of it, else F32."""
    from gguf import GGUFWriter

    config, tensors = read_config(name), read_tensors(FOLDER / name / "model.safetensors")
    architecture = {"mistral": "llama", "gemma3_text": "gemma3"}.get(config["model_type"], config["model_type"])
    writer = GGUFWriter(path, architecture)
    _add_keys(writer, name, config, architecture)
    vocabulary.BYTE_LEVEL.add_to(writer)
    writer.add_chat_template(vocabulary.CHATML)
    for file_name, values in tensors.items():
        _add_tensor(writer, architecture, config, file_name, values, type_name)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _flattened(config: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            yield prefix + key, tuple(value) if isinstance(value[0], str) else np.array(value)
        else:
            yield prefix + key, value


def _add_keys(writer: Any, name: str, config: dict[str, Any], architecture: str) -> None:
    ropes = config.get("rope_parameters") or {}
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writer.add_name(name)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(int(head_dim * ropes.get("partial_rotary_factor", 1.0)))
    writer.add_rope_freq_base(ropes.get("full_attention", ropes).get("rope_theta", 10000.0))
    if architecture in ("llama", "phi3", "gemma2", "gemma3"):
        writer.add_sliding_window(config.get("sliding_window") or 0)
    if architecture == "gemma3":
        writer.add_sliding_window_pattern(config["sliding_window_pattern"])
        writer.add_rope_scaling_type(_linear())
        writer.add_rope_scaling_factor(ropes["full_attention"]["factor"])
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if ropes.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_divisors(ropes, head_dim))
    if ropes.get("rope_type") == "longrope":
        original = config["original_max_position_embeddings"]
        writer.add_rope_scaling_orig_ctx_len(original)
        stretch = np.log(config["max_position_embeddings"] / original) / np.log(original)
        writer.add_rope_scaling_attn_factors(float(np.sqrt(1 + stretch)))
        for kind in ("short", "long"):
            writer.add_tensor(f"rope_factors_{kind}.weight", np.array(ropes[f"{kind}_factor"], np.float32))


def _linear() -> Any:
    from gguf import RopeScalingType

    return RopeScalingType.LINEAR


def _llama3_divisors(ropes: dict[str, Any], head_dim: int) -> np.ndarray:
    """As Llama 3.1's own code has it: by wave length."""
    divisors = []
    for pair in range(head_dim // 2):
        wave = 2 * np.pi * ropes["rope_theta"] ** (2 * pair / head_dim)
        original, low, high = (
            ropes[key] for key in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
        )
        smooth = (original / wave - low) / (high - low)
        mixed = 1 / ((1 - smooth) / ropes["factor"] + smooth)
        divisors.append(1.0 if wave < original / high else ropes["factor"] if wave > original / low else mixed)
    return np.array(divisors, np.float32)


_PARTS = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip
_GEMMA_PARTS = {
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip
_TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def _add_tensor(
    writer: Any, architecture: str, config: dict[str, Any], file_name: str, values: np.ndarray, type_name: str
) -> None:
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize

    stem, ending = file_name.rsplit(".", 1)
    if stem in _TOP:
        name = _TOP[stem]
    else:
        _, _, layer, part = stem.split(".", 3)
        parts = _PARTS | (_GEMMA_PARTS if architecture.startswith("gemma") else {})
        name = f"blk.{layer}.{parts[part]}"
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}.get(name.split(".")[-1], 0)
    if heads and architecture in ("llama", "smollm3"):
        halves = values.reshape(heads, 2, -1, *values.shape[1:])
        values = np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(values.shape)
    if architecture.startswith("gemma") and name.endswith("norm"):
        values = values + np.float32(1)
    if values.ndim == 1 or type_name == "F32" or values.shape[1] % 32:
        writer.add_tensor(f"{name}.{ending}", values)
    else:
        kind = GGMLQuantizationType[type_name]
        writer.add_tensor(f"{name}.{ending}", quantize(values, kind), raw_dtype=kind)
