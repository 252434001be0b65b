"""Small random models as Hugging Face folders, written with numpy alone. Owns: LLAMA, write_folder, write_hollow. Needs:
the tokenizers of tests/fixtures."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

TOKENIZERS = Path(__file__).parents[1] / "fixtures" / "tokenizers"
NUMPY_TYPES = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "I64": np.dtype("<i8")}

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 64,
    "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 448,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": None,
    "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": [2, 0], "torch_dtype": "bfloat16",
}  # fmt: skip


def llama_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Tensors of a llama by the names of transformers."""
    hidden, ffn, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    kv = hidden // heads * config["num_key_value_heads"]
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    for index in range(config["num_hidden_layers"]):
        at = f"model.layers.{index}."
        shapes |= {
            at + "input_layernorm.weight": (hidden,), at + "self_attn.q_proj.weight": (hidden, hidden),
            at + "self_attn.k_proj.weight": (kv, hidden), at + "self_attn.v_proj.weight": (kv, hidden),
            at + "self_attn.o_proj.weight": (hidden, hidden), at + "post_attention_layernorm.weight": (hidden,),
            at + "mlp.gate_proj.weight": (ffn, hidden), at + "mlp.up_proj.weight": (ffn, hidden),
            at + "mlp.down_proj.weight": (hidden, ffn),
        }  # fmt: skip
    shapes["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = shapes["model.embed_tokens.weight"]
    return shapes


def random_tensors(shapes: Mapping[str, tuple[int, ...]], seed: int = 0) -> dict[str, np.ndarray]:
    """float32 values of the size that those of trained models have, so that logits differ by a few units."""
    rng = np.random.default_rng(seed)
    found = {}
    for name, shape in shapes.items():
        if len(shape) == 1:
            values = 0.1 * rng.standard_normal(shape) + (0.0 if name.endswith("bias") else 1.0)
        else:
            values = rng.standard_normal(shape) * (0.5 if "embed" in name else 1 / math.sqrt(shape[1]))
        found[name] = values.astype(np.float32)
    return found


def stored(values: np.ndarray, dtype: str) -> bytes:
    """The bytes of a tensor; bfloat16 by cutting a float32, which is what it is then."""
    if dtype == "BF16":
        return (values.astype("<f4").view(np.uint32) >> 16).astype("<u2").tobytes()
    return values.astype(NUMPY_TYPES[dtype]).tobytes()


def save_safetensors(path: Path, tensors: Mapping[str, np.ndarray], dtype: str = "F32") -> Path:
    """One file, as the library writes it: the header filled up to 8 bytes with spaces."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, values in tensors.items():
        raw = stored(values, dtype)
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
    return path


def write_hollow(folder: Path, config: Mapping[str, Any], shards: int) -> int:
    """A llama whose weights are all 0 and lie in holes of its files: gigabytes that take no room and no time. Returns bytes."""
    write_folder(folder, config, {})
    (folder / "model.safetensors").unlink()
    shapes = llama_shapes(config)
    weight_map, total = {}, 0
    for index in range(shards):
        file, header, place = f"model-{index + 1:05d}-of-{shards:05d}.safetensors", {}, 0
        for name in list(shapes)[index::shards]:
            end = place + 2 * math.prod(shapes[name])
            header[name] = {"dtype": "BF16", "shape": list(shapes[name]), "data_offsets": [place, end]}
            weight_map[name], place = file, end
        text = json.dumps(header).encode()
        with (folder / file).open("wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            out.truncate(8 + len(text) + place)
        total += place
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return total


def write_folder(
    folder: Path,
    config: Mapping[str, Any] = LLAMA,
    tensors: Mapping[str, np.ndarray] | None = None,
    *,
    dtype: str = "F32",
    tokenizer: str = "smollm2",
    shards: int = 1,
) -> Path:
    """A model folder; without `tensors` those of a llama."""
    tensors = random_tensors(llama_shapes(config)) if tensors is None else tensors
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copytree(TOKENIZERS / tokenizer, folder, dirs_exist_ok=True)
    if shards == 1:
        save_safetensors(folder / "model.safetensors", tensors, dtype)
        return folder
    names = list(tensors)
    weight_map: dict[str, str] = {}
    for index in range(shards):
        file = f"model-{index + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: tensors[name] for name in names[index::shards]}
        weight_map |= dict.fromkeys(part, file)
        save_safetensors(folder / file, part, dtype)
    index_text = json.dumps({"metadata": {"total_size": 0}, "weight_map": weight_map})
    (folder / "model.safetensors.index.json").write_text(index_text)
    return folder
