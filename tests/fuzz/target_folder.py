"""Model folders: safetensors headers, shards, config.json, tokenizer.json. Owns: a small folder. Needs: the tiny models.
Never: the reader."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from json_mutations import JsonSeed
from mutations import INTERESTING, mutate_bytes
from siblings import add_siblings

SMALL = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 1}
CONFIG, WEIGHTS, TOKENIZER, SETTINGS = "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"
FILES = (CONFIG, WEIGHTS, TOKENIZER, SETTINGS)
# Read up to the spec; the tensors of the folder are then another model's. Phi's has all parts of a rope, Gemma's two of them.
OTHER_CONFIGS = (
    {"model_type": "phi3", "partial_rotary_factor": 0.5, "original_max_position_embeddings": 64, "sliding_window": 32,
     "rope_scaling": {"type": "longrope", "factor": 8.0, "attention_factor": 1.2, "short_factor": [1.0], "long_factor": [2.0]}},
    {"model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh", "head_dim": 4, "sliding_window": 8,
     "query_pre_attn_scalar": 4, "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "rope_local_base_freq": 10000.0},
    {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}},
    {"model_type": "smollm3", "no_rope_layers": [0], "use_sliding_window": True, "sliding_window": 8},
)  # fmt: skip


class FolderTarget:
    """Opens a folder one of whose files is damaged, reads every tensor, writes the tokenizer."""

    def __init__(self, folder: Path) -> None:
        add_siblings()
        from model_folders import LLAMA, write_folder

        self._folder = write_folder(folder / "model", {**LLAMA, **SMALL})
        self._written = folder / "tokenizer"
        self._written.mkdir()
        self._whole = {name: (self._folder / name).read_bytes() for name in FILES}
        length = int.from_bytes(self._whole[WEIGHTS][:8], "little")
        self._values = self._whole[WEIGHTS][8 + length :]
        texts = {**self._whole, WEIGHTS: self._whole[WEIGHTS][8 : 8 + length]}
        self._seeds = {name: JsonSeed(json.loads(text)) for name, text in texts.items()}
        self._configs = [self._seeds[CONFIG], *(JsonSeed({**LLAMA, **SMALL, **own}) for own in OTHER_CONFIGS)]
        self._last = WEIGHTS  # the file that is damaged now

    def make(self, random: Random) -> bytes:
        place = random.choices(range(len(FILES)), (3, 6, 1, 1))[0]
        name = FILES[place]
        data = (random.choice(self._configs) if name == CONFIG else self._seeds[name]).mutate(random)
        if name == WEIGHTS:
            length = random.choice(INTERESTING) if random.random() < 0.1 else len(data)
            data = (length % (1 << 64)).to_bytes(8, "little") + data + self._values
            if random.random() < 0.2:
                data = mutate_bytes(random, self._whole[WEIGHTS], [data])
        return bytes([place]) + data

    def run(self, data: bytes) -> None:
        from engines.sources.base import open_source
        from engines.sources.tokenizers import write_source_tokenizer

        (self._folder / self._last).write_bytes(self._whole[self._last])
        self._last = FILES[data[0]]
        (self._folder / self._last).write_bytes(data[1:])
        source = open_source(self._folder)
        for name in source.tensor_names():
            source.read(name).to_float32()
        if self._last in (TOKENIZER, SETTINGS):
            write_source_tokenizer(source.metadata, self._written)
