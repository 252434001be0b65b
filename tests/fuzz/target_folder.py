"""Model folders: safetensors headers, shards, config.json of every family, tokenizer.json. Owns: small folders. Needs: the tiny
models, the fixtures of the families. Never: the reader."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from json_mutations import JsonSeed
from mutations import INTERESTING, mutate_bytes
from siblings import add_siblings

SMALL = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 1}
CONFIG, WEIGHTS, TOKENIZER, SETTINGS = "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"
INDEX = "model.safetensors.index.json"
# Forms that files of other ages have, read up to the spec: the tensors beside them are a llama's. Phi's has all parts of a
# rope, Gemma's two of them.
OTHER_CONFIGS = (
    {"model_type": "phi3", "partial_rotary_factor": 0.5, "original_max_position_embeddings": 64, "sliding_window": 32,
     "rope_scaling": {"type": "longrope", "factor": 8.0, "attention_factor": 1.2, "short_factor": [1.0], "long_factor": [2.0]}},
    {"model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh", "head_dim": 4, "sliding_window": 8,
     "query_pre_attn_scalar": 4, "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "rope_local_base_freq": 10000.0},
    {"model_type": "gemma3", "vision_config": {"hidden_size": 4}, "text_config": {
        **SMALL, "head_dim": 4, "sliding_window": 8, "query_pre_attn_scalar": 4, "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0}, "sliding_attention": {"rope_type": "default"}}}},
    {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}},
    {"model_type": "smollm3", "no_rope_layers": [0], "use_sliding_window": True, "sliding_window": 8},
)  # fmt: skip


class FolderTarget:
    """Opens a folder one of whose files is damaged, reads every tensor, writes the tokenizer.

    An input is the number of a file, then its bytes. The files are those of a small llama in one shard and, of each family, the
    configuration and the index of two shards.
    """

    def __init__(self, folder: Path) -> None:
        add_siblings()
        from family_models import FAMILIES, write_family_folder
        from model_folders import LLAMA, write_folder

        llama = write_folder(folder / "model", {**LLAMA, **SMALL})
        families = [write_family_folder(name, folder / name) for name in FAMILIES]
        self._written = folder / "tokenizer"
        self._written.mkdir()
        self._paths = [llama / name for name in (CONFIG, WEIGHTS, TOKENIZER, SETTINGS)]
        self._paths += [family / name for family in families for name in (CONFIG, INDEX)]
        self._weights = [6 if path.name == WEIGHTS else 1 for path in self._paths]
        self._whole = [path.read_bytes() for path in self._paths]
        header = self._paths.index(llama / WEIGHTS)
        length = int.from_bytes(self._whole[header][:8], "little")
        self._values = self._whole[header][8 + length :]
        texts = [*self._whole]
        texts[header] = texts[header][8 : 8 + length]
        # By file. Each may be damaged, and the llama's configuration is of several forms.
        self._seeds = [[JsonSeed(json.loads(text))] for text in texts]
        self._seeds[0] += [JsonSeed({**LLAMA, **SMALL, **own}) for own in OTHER_CONFIGS]
        self._last = 0  # the file that is damaged now

    def model_types(self) -> set[str]:
        """Of all configurations that are damaged."""
        configs = [self._seeds[place] for place, path in enumerate(self._paths) if path.name == CONFIG]
        return {json.loads(seed.text)["model_type"] for seeds in configs for seed in seeds}

    def whole_inputs(self) -> list[bytes]:
        """The files as they are."""
        return [bytes([place]) + whole for place, whole in enumerate(self._whole)]

    def make(self, random: Random) -> bytes:
        place = random.choices(range(len(self._paths)), self._weights)[0]
        data = random.choice(self._seeds[place]).mutate(random)
        if self._paths[place].name == WEIGHTS:
            length = random.choice(INTERESTING) if random.random() < 0.1 else len(data)
            data = (length % (1 << 64)).to_bytes(8, "little") + data + self._values
            if random.random() < 0.2:
                data = mutate_bytes(random, self._whole[place], [data])
        return bytes([place]) + data

    def run(self, data: bytes) -> None:
        from engines.sources.base import open_source
        from engines.sources.tokenizers import write_source_tokenizer

        self._paths[self._last].write_bytes(self._whole[self._last])
        self._last = data[0]
        damaged = self._paths[self._last]
        damaged.write_bytes(data[1:])
        source = open_source(damaged.parent)
        for name in source.tensor_names():
            source.read(name).to_float32()
        if damaged.name in (TOKENIZER, SETTINGS):
            write_source_tokenizer(source.metadata, self._written)
