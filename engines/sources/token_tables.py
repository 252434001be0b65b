"""A vocabulary as the runtime reads it. Owns: what tokens decode to, which text may become a token, the sections of tables.bin.
Needs: tokens, kinds, merges. Never: a file format, text at run time (edge/text)."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edge.text.pieces import SPACE
from edge.text.tables import BYTE, CONTROL, ID_BITS, UNKNOWN, USER_DEFINED, TokenTables
from edge.text.tokenizer_config import Symbols

BYTE_TOKEN = re.compile("<0x[0-9A-F]{2}>")
MAX_SPACE_FOLLOWS = 64  # more exceptions than this and a vocabulary joins words freely: no cutting at spaces
MATCHED = (CONTROL, UNKNOWN, USER_DEFINED)  # in the raw text, before anything is cut or merged
# Tokens that end an answer, whatever the file calls its eos: chat models often name only one of two.
END_TEXTS = ("<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>",
             "<end_of_utterance>", "<eos>", "</s>", "<EOT>", "[EOS]", "[EOT]")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokens of a model and how text becomes them."""

    tokens: Sequence[str]  # as the model's file writes them; "" where an id has none
    kinds: Sequence[int]  # as GGUF numbers them (edge/text/tables.py)
    symbols: Symbols
    whole_pieces: bool  # a piece that is a token is taken before anything merges


@dataclass(frozen=True, slots=True)
class Merges:
    """All merges of a vocabulary, best first. Ids from the token count on are symbols that are no token."""

    left: np.ndarray  # int64 [M]
    right: np.ndarray  # int64 [M]
    result: np.ndarray  # int64 [M]
    rank: np.ndarray  # int64 [M], ascending; equal ranks merge leftmost first
    symbols: dict[int, int]  # byte or code point -> id


def make_tables(vocabulary: Vocabulary, merges: Merges) -> TokenTables:
    """What write_tables writes."""
    tokens, kinds = vocabulary.tokens, vocabulary.kinds
    texts = [_decoded(vocabulary, place) for place in range(len(tokens))]
    keys = merges.left << ID_BITS | merges.right
    order = np.argsort(keys)
    codes = sorted(merges.symbols)
    whole = [place for place, token in enumerate(tokens) if vocabulary.whole_pieces and is_mergeable(token, kinds[place])]
    return TokenTables(
        text_ends=np.cumsum([len(text) for text in texts]).tolist(),
        kinds=bytes(kinds),
        merge_keys=keys[order].tolist(),
        merge_values=(merges.rank << ID_BITS | merges.result)[order].tolist(),
        symbol_codes=codes,
        symbol_ids=[merges.symbols[code] for code in codes],
        pieces=sorted(whole, key=texts.__getitem__),
        specials=[place for place, kind in enumerate(kinds) if kind in MATCHED and tokens[place]],
        text=memoryview(b"".join(texts)),
    )


def end_ids(vocabulary: Vocabulary, first: int | None, others: set[int]) -> tuple[int, ...]:
    """Tokens that end an answer: `first`, which the model calls its own, the others that it names, those that are known."""
    named = zip(vocabulary.tokens, vocabulary.kinds, strict=True)
    known = {place for place, (token, kind) in enumerate(named) if token in END_TEXTS and kind == CONTROL}
    own = () if first is None else (first,)
    return (*own, *sorted((others | known) - set(own)))


def _decoded(vocabulary: Vocabulary, place: int) -> bytes:
    """The bytes that a token decodes to."""
    token, kind = vocabulary.tokens[place], vocabulary.kinds[place]
    if kind == BYTE:
        return bytes([int(token[3:5], 16)])
    if kind in MATCHED:
        return token.encode("utf-8")
    if vocabulary.symbols == "characters":
        return token.replace(SPACE, " ").encode("utf-8")
    table = byte_characters()
    if all(char in table for char in token):
        return bytes(table[char] for char in token)
    return token.encode("utf-8")  # added as plain text: no merge makes it, the model may


def space_follows(vocabulary: Vocabulary) -> str | None:
    """Characters c for which some token holds "c, space"; None where they are too many to list."""
    found = {
        before
        for token, kind in zip(vocabulary.tokens, vocabulary.kinds, strict=True)
        if is_mergeable(token, kind) and SPACE in token[1:]
        for before, after in itertools.pairwise(token)
        if after == SPACE and before != SPACE
    }
    return "".join(sorted(found)) if len(found) <= MAX_SPACE_FOLLOWS else None


def is_mergeable(token: str, kind: int) -> bool:
    """Whether plain text may become this token. A control token never: text that looks like one stays text."""
    return bool(token) and kind not in (CONTROL, UNKNOWN, BYTE)


@functools.cache
def byte_characters() -> dict[str, int]:
    """How byte-level vocabularies write a byte: GPT-2's table (openai/gpt-2, encoder.py, bytes_to_unicode)."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(0x100 + place): byte for place, byte in enumerate(hidden)}
