"""The tokenizer parts of a model file, written as a package has them. Owns: their seeds. Needs: the tiny vocabularies.
Never: file formats."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any

from json_mutations import JsonSeed
from siblings import add_siblings
from text_pools import TEXTS

from edge.errors import SourceError
from engines.sources.pre_tokenizers import PRE_TOKENIZERS

TOKENS = (
    "",
    "a",
    "ab",
    " ",
    "\u2581",
    "\u2581" * 200,
    "<0x41>",
    "<0xZZ>",
    "<|x|>",
    "a b",
    "\u0120",
    "\0",
    "\ud800",
    "\U0010ffff",
    "x" * 300,
    "xy" * 3000,
)
MERGES = ("a b", "a", "a b c", "", " ", "\u0120 \u0120", "\u0120\u0120 \u0120", "x x", "<|x|> a")
NUMBERS = (-1, 0, 1, 2, 3, 4, 5, 6, 7, 299, 300, 1 << 31, 1 << 64)
SCORES = (0.0, -1.0, 1.0, 1e308, -1e308, 5e-324, -0.0)


class VocabularyTarget:
    """Writes the tokenizer of damaged parts, opens and uses it."""

    def __init__(self, folder: Path) -> None:
        add_siblings()
        from tiny_tokenizers import parts_of
        from vocabulary import BYTE_LEVEL, CHATML, SENTENCE_PIECE

        self._folder = folder
        parts = [parts_of(BYTE_LEVEL, CHATML), parts_of(SENTENCE_PIECE)]
        parts.append(replace(parts[0], pre="llama-bpe"))
        self._parts = parts
        self._seeds = [JsonSeed(asdict(each)) for each in parts]

    def make(self, random: Random) -> bytes:
        place = random.randrange(len(self._parts))
        if random.random() < 0.2:
            return self._seeds[place].mutate(random)
        plain = asdict(self._parts[place])
        for _ in range(random.randint(1, 3)):
            _damage(random, plain)
        return json.dumps(plain).encode()

    def run(self, data: bytes) -> None:
        from edge.jsons import JsonMismatch, read_json
        from edge.text.tokenizer import Tokenizer
        from engines.sources.base import TokenizerParts
        from engines.sources.gguf_tokenizer import write_tokenizer

        try:
            parts = read_json(data.decode("utf-8"), TokenizerParts)
        except (JsonMismatch, UnicodeDecodeError) as error:
            # The reader of a file gives what has this form.
            raise SourceError("parts of another form") from error
        write_tokenizer(parts, self._folder)
        tokenizer = Tokenizer.open(self._folder)
        for text in TEXTS:
            tokenizer.decode(tokenizer.encode(text, specials=True))


def _damage(random: Random, plain: dict[str, Any]) -> None:
    """One part changed, of the right type."""
    key = random.choice(("tokens", "types", "scores", "merges", "ids", "flags", "model", "pre"))
    values = plain[key]
    if isinstance(values, str):
        plain[key] = random.choice((*PRE_TOKENIZERS, "llama", "gpt2", ""))
    elif isinstance(values, dict):
        name = random.choice((*values, "eot", "x"))
        values[name] = random.choice((True, False)) if key == "flags" else random.choice(NUMBERS)
    else:
        pool = {"tokens": (*TOKENS, *values), "types": NUMBERS, "scores": SCORES, "merges": (*MERGES, *values)}[key] or (0,)
        items, at = list(values), random.randrange(len(values) + 1)
        match random.randrange(4):
            case 0:
                del items[at : at + random.choice((1, 300))]
            case 1:
                items.insert(at, random.choice(pool))
            case _:
                items[at : at + 1] = [random.choice(pool)]
        plain[key] = items
