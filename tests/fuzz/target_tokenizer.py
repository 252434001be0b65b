"""Tokenizers: damaged tables and settings; any text and ids. Owns: the folders of two vocabularies. Needs: the tiny
vocabularies. Never: the reader."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from json_mutations import JsonSeed
from mutations import INTERESTING, mutate_bytes, mutate_spots
from siblings import add_siblings
from text_pools import TEXTS, draw_text

if TYPE_CHECKING:
    from edge.text.tokenizer import Tokenizer

TABLES, CONFIG = "tables.bin", "tokenizer_config.json"
TEXT, IDS = 0, 1


def _folders(folder: Path) -> Iterator[Path]:
    add_siblings()
    from tiny_tokenizers import parts_of
    from vocabulary import BYTE_LEVEL, CHATML, SENTENCE_PIECE

    from engines.sources.gguf_tokenizer import write_tokenizer

    for name, parts in (("bytes", parts_of(BYTE_LEVEL, CHATML)), ("pieces", parts_of(SENTENCE_PIECE))):
        (folder / name).mkdir()
        write_tokenizer(parts, folder / name)
        yield folder / name


def tokenizers_in(folder: Path) -> list[Tokenizer]:
    """A byte-level one and a SentencePiece one."""
    from edge.text.tokenizer import Tokenizer

    return [Tokenizer.open(each) for each in _folders(folder)]


class TablesTarget:
    """tables.bin and tokenizer_config.json of one folder."""

    def __init__(self, folder: Path) -> None:
        folders = list(_folders(folder))
        self._tables = [(each / TABLES).read_bytes() for each in folders]
        self._configs = [JsonSeed(json.loads((each / CONFIG).read_bytes())) for each in folders]
        self._folder = folder / "used"
        self._folder.mkdir()

    def make(self, random: Random) -> bytes:
        place = random.randrange(len(self._tables))
        tables, config = self._tables[place], self._configs[place].text.encode()
        if (way := random.random()) < 0.35:
            config = self._configs[place].mutate(random)
        elif way < 0.6:
            tables = mutate_bytes(random, tables, self._tables)
        elif way < 0.7:
            tables = mutate_spots(random, tables, [(8 * i, 8) for i in range(7)])
        else:
            words = [(8 * random.randrange(len(tables) // 8), random.choice((4, 8))) for _ in range(6)]
            tables = mutate_spots(random, tables, words, 6)
        return struct.pack("<I", len(tables)) + tables + config

    def run(self, data: bytes) -> None:
        from edge.text.template import ChatTemplate
        from edge.text.tokenizer import Tokenizer

        (count,) = struct.unpack_from("<I", data)
        (self._folder / TABLES).write_bytes(data[4 : 4 + count])
        (self._folder / CONFIG).write_bytes(data[4 + count :])
        tokenizer = Tokenizer.open(self._folder)
        ChatTemplate.find(self._folder, tokenizer)
        for text in TEXTS:
            ids = tokenizer.encode(text, specials=True)
            tokenizer.frame(tokenizer.encode(text, specials=False))
            tokenizer.decode(ids, specials=True)
        tokenizer.check_length(1 << 20, 1 << 20)


class TextTarget:
    """Any text and any ids: what is encoded decodes to itself, a stream is what all ids at once are."""

    def __init__(self, folder: Path) -> None:
        self._tokenizers = tokenizers_in(folder)

    def make(self, random: Random) -> bytes:
        place = random.randrange(len(self._tokenizers))
        if random.random() < 0.7:
            return bytes([place, TEXT]) + draw_text(random).encode("utf-8", "surrogatepass")
        last = self._tokenizers[place].vocab_size
        ids = [random.choice((random.randrange(last), random.choice(INTERESTING), -1)) if random.random() < 0.02 else
               random.randrange(last) for _ in range(random.randrange(40))]  # fmt: skip
        return bytes([place, IDS]) + json.dumps(ids).encode()

    def run(self, data: bytes) -> None:
        tokenizer = self._tokenizers[data[0]]
        if data[1] == IDS:
            self._check_stream(tokenizer, json.loads(data[2:]))
            return
        text = data[2:].decode("utf-8", "surrogatepass")
        plain = tokenizer.encode(text, specials=False)
        decoded = tokenizer.decode(plain)
        assert decoded == text or decoded.replace("\u2581", " ") == text.replace("\u2581", " "), (
            f"{text!r} decodes to {decoded!r}"
        )
        assert not {token for token in plain if tokenizer.token_bytes(token, specials=False) == b""}, (
            "text made a control token"
        )
        self._check_stream(tokenizer, tokenizer.encode_prompt(text))
        self._check_stream(tokenizer, tokenizer.encode(text, specials=True))

    @staticmethod
    def _check_stream(tokenizer: Tokenizer, ids: list[int]) -> None:
        stream = tokenizer.stream()
        joined = "".join([*(stream.push(token) for token in ids), stream.finish()])
        assert joined == tokenizer.decode(ids), f"{ids} streams as {joined!r}"
