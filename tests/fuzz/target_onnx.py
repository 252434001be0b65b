"""Portable ONNX: the protobuf, what it says about itself, where its data lies. Owns: an export. Needs: the tiny models.
Never: the reader."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from json_mutations import LITERALS, JsonSeed
from mutations import INTERESTING, INVALID_TEXT, mutate_bytes
from siblings import add_siblings

PLACES = ("", "/etc/passwd", "../tiny.gguf", "..", ".", "a\\b", "a\0b", "x" * 5000, "missing.data", "loop", "pipe", "/dev/zero")


class OnnxTarget:
    """Opens an export over data that stays as it is, and reads each weight, constant and node."""

    def __init__(self, folder: Path) -> None:
        add_siblings()
        from synthetic import LLAMA, write_tiny

        from calibration.tiers import load_tier
        from engines.portable.export import write_portable
        from engines.sources.base import open_source

        small = replace(LLAMA, hidden=32, feed_forward=32, heads=2, head_dim=8, layers=1)
        self._path = folder / "export" / "tier.onnx"
        self._path.parent.mkdir()
        (self._path.parent / "loop").symlink_to("loop")
        self._seeds: list[bytes] = []
        self._texts: dict[str, JsonSeed] = {}
        source = open_source(write_tiny(folder / "tiny.gguf", small))
        for tier in ("fp16", "int8", "int4"):
            write_portable(source, load_tier(tier), self._path)  # the data of the last one stays
            self._seeds.append(self._path.read_bytes())
        for entry in self._parsed(self._seeds[-1]).metadata_props:
            if entry.value.startswith("{"):
                self._texts[entry.key] = JsonSeed(json.loads(entry.value))

    def make(self, random: Random) -> bytes:
        data = self._seeds[-1] if random.random() < 0.9 else random.choice(self._seeds)
        if random.random() < 0.15:
            return mutate_bytes(random, data, self._seeds)
        model = self._parsed(data)
        for _ in range(random.randint(1, 2)):
            self._damage(random, model)
        data = model.SerializeToString()
        return mutate_bytes(random, data, self._seeds, 1) if random.random() < 0.1 else data

    def run(self, data: bytes) -> None:
        from engines.lowering.graph import read_graph
        from engines.portable.reader import read_portable

        self._path.write_bytes(data)
        model = read_portable(self._path)
        for name in model.stored:
            model.weight(name)
        for tensor in model.graph.initializer:
            if tensor.name not in model.initializers:
                model.constant(tensor.name)
        read_graph(self._path)

    @staticmethod
    def _parsed(data: bytes) -> Any:
        from onnx import ModelProto

        model = ModelProto()
        model.ParseFromString(data)
        return model

    def _damage(self, random: Random, model: Any) -> None:
        graph, number = model.graph, random.choice(INTERESTING) * random.choice((1, -1))
        tensor, node = random.choice(graph.initializer), random.choice(graph.node)
        bounded = max(-(1 << 63), min(number, (1 << 63) - 1))
        match random.randrange(10):
            case 0 | 1 | 2:
                entry = random.choice(model.metadata_props)
                seed = self._texts.get(entry.key)
                entry.value = seed.mutate(random).decode("utf-8", "replace") if seed else random.choice(LITERALS)
            case 3 if tensor.external_data:
                entry = random.choice(tensor.external_data)
                entry.value = random.choice((str(number), "", "1_0", " 7 ", "x", *PLACES))
            case 4:
                if tensor.dims and random.random() < 0.7:
                    tensor.dims[random.randrange(len(tensor.dims))] = bounded
                else:
                    tensor.dims.extend([bounded] * random.choice((1, 2, 40)))
            case 5:
                tensor.data_type = random.randrange(-1, 30)
            case 6:
                tensor.name = random.choice((random.choice(graph.initializer).name, "", "a\nb", "x" * 5000))
            case 7:
                tensor.data_location = random.randrange(2)
                tensor.raw_data = random.choice((b"", *INVALID_TEXT, tensor.raw_data * 2))
            case 8 if node.attribute:
                attribute = random.choice(node.attribute)
                attribute.type = random.randrange(15)
                attribute.t.CopyFrom(tensor)
            case _:
                value = random.choice(graph.input)
                value.type.tensor_type.elem_type = random.randrange(-1, 30)
                value.name = random.choice((value.name, "", "a\x1bb"))
