"""A tokenizer from the parts that a GGUF file holds. Owns: checks, merges from scores, the files of a tokenizer folder.
Needs: TokenizerParts. Never: the GGUF format (gguf.py), text at run time (edge/text).

Two kinds are read: byte-level BPE (tokenizer.ggml.model = gpt2) and SentencePiece BPE (llama). SentencePiece files hold a
score per token instead of merges: two neighbours merge when their joined text is a token, the best score first, so every
split of every token is a merge whose rank follows the score; equal scores share a rank (leftmost first, as SentencePiece
does it).
"""

from __future__ import annotations

import functools
import itertools
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge.errors import SourceError
from edge.text.pieces import BYTE_CODES, SPACE
from edge.text.tables import BYTE, CONTROL, ID_BITS, UNKNOWN, USER_DEFINED, TokenTables, write_tables
from edge.text.tokenizer import TABLES_NAME
from edge.text.tokenizer_config import TokenizerConfig, write_config
from engines.sources.base import TokenizerParts
from engines.sources.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from engines.sources.tokenizer_json import write_json

TEMPLATE_NAME = "chat_template.jinja"
MODELS = {"gpt2": "bytes", "llama": "characters"}
CONVERT_AGAIN = "Convert the model again, or fetch another file"
# Tokens that end an answer, whatever the file calls its eos: chat models often name only one of two.
END_TEXTS = ("<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>",
             "<end_of_utterance>", "<eos>", "</s>", "<EOT>", "[EOS]", "[EOT]")  # fmt: skip
KINDS = range(7)  # GGUF's token types; 0 is undefined, and taken as normal
_BYTE_TOKEN = re.compile("<0x[0-9A-F]{2}>")
MAX_SPACE_FOLLOWS = 64  # more exceptions than this and a vocabulary joins words freely: no cutting at spaces


@dataclass(frozen=True, slots=True)
class Merges:
    """All merges of a vocabulary, best first. Ids from the token count on are symbols that are no token."""

    left: np.ndarray  # int64 [M]
    right: np.ndarray  # int64 [M]
    result: np.ndarray  # int64 [M]
    rank: np.ndarray  # int64 [M], ascending; equal ranks merge leftmost first
    symbols: dict[int, int]  # byte or code point -> id


def write_tokenizer(parts: TokenizerParts, folder: Path, where: str = "the model file") -> TokenizerConfig:
    """Writes tokenizer.json, tables.bin, tokenizer_config.json, and chat_template.jinja where the model has one.

    `folder` exists; `where` names the file in messages. SourceError where a part is missing, or parts disagree.
    """
    try:
        _check(parts)
        pre = _pre_tokenizer(parts)
        merges = _merges_of_bytes(parts) if parts.model == "gpt2" else _merges_of_scores(parts)
        config = _config(parts, pre)
    except SourceError as error:
        raise SourceError(f"{where}: {error}") from error
    write_json(parts, pre, merges.left, merges.right, config, folder / "tokenizer.json")
    write_tables(folder / TABLES_NAME, _tables(parts, pre, merges))
    write_config(folder, config)
    if parts.chat_template:
        (folder / TEMPLATE_NAME).write_text(parts.chat_template, encoding="utf-8", newline="")
    return config


def _check(parts: TokenizerParts) -> None:
    if parts.model not in MODELS:
        raise SourceError(f"tokenizer.ggml.model is {parts.model!r}; {', '.join(MODELS)} can be read. Choose another model")
    ranks = ("merges", len(parts.merges)) if parts.model == "gpt2" else ("scores", len(parts.scores))
    for key, length in (("tokens", len(parts.tokens)), ("token_type", len(parts.types)), ranks):
        if not length:
            raise SourceError(f"tokenizer.ggml.{key} is missing. {CONVERT_AGAIN}")
    count = len(parts.tokens)
    for key, length in (("token_type", len(parts.types)), ("scores", len(parts.scores) or count)):
        if length != count:
            raise SourceError(f"tokenizer.ggml.{key} has {length:,} entries for {count:,} tokens. {CONVERT_AGAIN}")
    first: dict[str, int] = {}
    for place, token in enumerate(parts.tokens):
        if token and first.setdefault(token, place) != place:
            raise SourceError(f"tokenizer.ggml.tokens: {first[token]} and {place} are both {token!r}. {CONVERT_AGAIN}")
    for place, kind in enumerate(parts.types):
        if kind not in KINDS or (kind == BYTE and not _BYTE_TOKEN.fullmatch(parts.tokens[place])):
            fact = f"{place} is {parts.tokens[place]!r} of type {kind}, which it cannot be"
            raise SourceError(f"tokenizer.ggml.token_type: {fact}. {CONVERT_AGAIN}")
    for name, token_id in parts.ids.items():
        if not 0 <= token_id < count:
            raise SourceError(f"tokenizer.ggml.{name}_token_id is {token_id}, there are {count:,} tokens. {CONVERT_AGAIN}")
    if parts.model == "llama":
        if not np.isfinite(np.asarray(parts.scores)).all():
            raise SourceError(f"tokenizer.ggml.scores holds a value that is not a number. {CONVERT_AGAIN}")
        missing = [f"<0x{byte:02X}>" for byte in range(256) if f"<0x{byte:02X}>" not in first]
        if missing:
            raise SourceError(f"tokenizer.ggml.tokens lacks {len(missing)} byte tokens, {missing[0]} first. {CONVERT_AGAIN}")


def _pre_tokenizer(parts: TokenizerParts) -> PreTokenizer:
    if parts.model == "llama":
        return PreTokenizer((), add_bos=True)
    name = parts.pre or "default"
    if name not in PRE_TOKENIZERS:
        known = ", ".join(sorted(PRE_TOKENIZERS))
        raise SourceError(f"tokenizer.ggml.pre is {name!r}, which is not known. Known: {known}. Choose another model")
    return PRE_TOKENIZERS[name]


def _config(parts: TokenizerParts, pre: PreTokenizer) -> TokenizerConfig:
    is_spm = parts.model == "llama"
    defaults = {"bos": 1, "eos": 2, "unknown": 0} if is_spm else {}  # SentencePiece's own ids, where a file names none
    ids = {**{name: value for name, value in defaults.items() if value < len(parts.tokens)}, **parts.ids}
    add_bos = parts.flags.get("add_bos", pre.add_bos)
    if add_bos and "bos" not in ids:
        raise SourceError(f"tokenizer.ggml.bos_token_id is missing, and add_bos_token is set. {CONVERT_AGAIN}")
    named = {ids[name] for name in ("eos", "eot", "eom") if name in ids}
    ends = {place for place, token in enumerate(parts.tokens) if token in END_TEXTS and parts.types[place] == CONTROL}
    return TokenizerConfig(
        symbols="characters" if is_spm else "bytes",
        split=pre.split,
        whole_pieces=pre.whole_pieces,
        space_follows=_space_follows(parts) if is_spm else None,
        add_space_prefix=is_spm and parts.flags.get("add_space_prefix", True),
        vocab_size=len(parts.tokens),
        bos_token_id=ids.get("bos"),
        eos_token_ids=tuple(sorted(named | ends)),
        unk_token_id=ids.get("unknown"),
        pad_token_id=ids.get("padding"),
        add_bos=add_bos,
        chat_template=None,
    )


def _space_follows(parts: TokenizerParts) -> str | None:
    """Characters c for which some token holds "c, space"; None where they are too many to list."""
    found = {
        before
        for token, kind in zip(parts.tokens, parts.types, strict=True)
        if _is_mergeable(token, kind) and SPACE in token[1:]
        for before, after in itertools.pairwise(token)
        if after == SPACE and before != SPACE
    }
    return "".join(sorted(found)) if len(found) <= MAX_SPACE_FOLLOWS else None


def _is_mergeable(token: str, kind: int) -> bool:
    """Whether plain text may become this token. A control token never: text that looks like one stays text."""
    return bool(token) and kind not in (CONTROL, UNKNOWN, BYTE)


def _merges_of_bytes(parts: TokenizerParts) -> Merges:
    """Byte-level BPE: the merges are in the file."""
    ids = {token: place for place, token in enumerate(parts.tokens) if _is_mergeable(token, parts.types[place])}
    pairs: dict[tuple[int, int], int] = {}
    for line in parts.merges:
        left, _, right = line.partition(" ")
        if left not in ids or right not in ids or left + right not in ids:
            part = next(text for text in (left, right, left + right) if text not in ids)
            raise SourceError(f"tokenizer.ggml.merges: {line!r} needs {part!r}, which is no token. {CONVERT_AGAIN}")
        pairs.setdefault((ids[left], ids[right]), ids[left + right])
    symbols = {byte: ids[char] for char, byte in _byte_characters().items() if char in ids}
    both = np.array(list(pairs), np.int64).reshape(-1, 2)
    return Merges(both[:, 0], both[:, 1], np.array(list(pairs.values()), np.int64), np.arange(len(pairs)), symbols)


def _merges_of_scores(parts: TokenizerParts) -> Merges:
    """SentencePiece BPE: every split of every token, ranked by the token's score."""
    ids = {token: place for place, token in enumerate(parts.tokens) if _is_mergeable(token, parts.types[place])}
    symbols = {ord(token): place for token, place in ids.items() if len(token) == 1}
    places = {token: place for place, token in enumerate(parts.tokens)}
    symbols |= {BYTE_CODES + byte: places[f"<0x{byte:02X}>"] for byte in range(256)}
    known = dict(ids)
    for token in ids:
        for char in token:
            if char not in known:
                known[char] = symbols[ord(char)] = len(parts.tokens) + len(known) - len(ids)
    rows = [
        (known[token[:cut]], known[token[cut:]], place)
        for token, place in ids.items()
        for cut in range(1, len(token))
        if token[:cut] in known and token[cut:] in known
    ]
    left, right, result = np.array(rows, np.int64).reshape(-1, 3).T
    _, rank = np.unique(-np.asarray(parts.scores, np.float64)[result], return_inverse=True)
    order = np.argsort(rank, kind="stable")
    return Merges(left[order], right[order], result[order], rank[order], symbols)


def _tables(parts: TokenizerParts, pre: PreTokenizer, merges: Merges) -> TokenTables:
    texts = [_decoded(parts, place) for place in range(len(parts.tokens))]
    keys = merges.left << ID_BITS | merges.right
    order = np.argsort(keys)
    codes = sorted(merges.symbols)
    whole = [place for place, token in enumerate(parts.tokens) if pre.whole_pieces and _is_mergeable(token, parts.types[place])]
    matched = (CONTROL, UNKNOWN, USER_DEFINED)
    return TokenTables(
        text_ends=np.cumsum([len(text) for text in texts]).tolist(),
        kinds=bytes(parts.types),
        merge_keys=keys[order].tolist(),
        merge_values=(merges.rank << ID_BITS | merges.result)[order].tolist(),
        symbol_codes=codes,
        symbol_ids=[merges.symbols[code] for code in codes],
        pieces=sorted(whole, key=texts.__getitem__),
        specials=[place for place, kind in enumerate(parts.types) if kind in matched and parts.tokens[place]],
        text=memoryview(b"".join(texts)),
    )


def _decoded(parts: TokenizerParts, place: int) -> bytes:
    """The bytes that a token decodes to."""
    token, kind = parts.tokens[place], parts.types[place]
    if kind == BYTE:
        return bytes([int(token[3:5], 16)])
    if kind in (CONTROL, UNKNOWN, USER_DEFINED):
        return token.encode("utf-8")
    if parts.model == "llama":
        return token.replace(SPACE, " ").encode("utf-8")
    table = _byte_characters()
    if all(char in table for char in token):
        return bytes(table[char] for char in token)
    return token.encode("utf-8")  # added as plain text: no merge makes it, the model may


@functools.cache
def _byte_characters() -> dict[str, int]:
    """How byte-level vocabularies write a byte: GPT-2's table (openai/gpt-2, encoder.py, bytes_to_unicode)."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(0x100 + place): byte for place, byte in enumerate(hidden)}
