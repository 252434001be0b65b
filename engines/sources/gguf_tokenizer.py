"""A tokenizer from the parts that a GGUF file holds. Owns: checks, merges from scores, the files of a tokenizer folder.
Needs: TokenizerParts. Never: the GGUF format (gguf.py), text at run time (edge/text).

Two kinds are read: byte-level BPE (tokenizer.ggml.model = gpt2) and SentencePiece BPE (llama). SentencePiece files hold a
score per token instead of merges: two neighbours merge when their joined text is a token, the best score first, so every
split of every token is a merge whose rank follows the score; equal scores share a rank (leftmost first, as SentencePiece
does it).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edge.errors import SourceError
from edge.text.pieces import BYTE_CODES
from edge.text.tables import BYTE, write_tables
from edge.text.tokenizer import TABLES_NAME
from edge.text.tokenizer_config import Symbols, TokenizerConfig, write_config
from engines.sources.base import TokenizerParts
from engines.sources.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from engines.sources.token_tables import (
    BYTE_TOKEN,
    Merges,
    Vocabulary,
    byte_characters,
    end_ids,
    is_mergeable,
    make_tables,
    space_follows,
)
from engines.sources.tokenizer_json import write_json

TEMPLATE_NAME = "chat_template.jinja"
MODELS: dict[str, Symbols] = {"gpt2": "bytes", "llama": "characters"}
CONVERT_AGAIN = "Convert the model again, or fetch another file"
KINDS = range(7)  # GGUF's token types; 0 is undefined, and taken as normal
LONGEST_TOKEN = 4096  # characters; each place at which a token can be split is tried


def write_tokenizer(parts: TokenizerParts, folder: Path, where: str = "the model file") -> TokenizerConfig:
    """Writes tokenizer.json, tables.bin, tokenizer_config.json, and chat_template.jinja where the model has one.

    `folder` exists; `where` names the file in messages. SourceError where a part is missing, or parts disagree.
    """
    try:
        _check(parts)
        pre = _pre_tokenizer(parts)
        merges = _merges_of_bytes(parts) if parts.model == "gpt2" else _merges_of_scores(parts)
        vocabulary = Vocabulary(parts.tokens, parts.types, MODELS[parts.model], pre.whole_pieces)
        config = _config(parts, pre, vocabulary)
    except SourceError as error:
        raise SourceError(f"{where}: {error}") from error
    write_json(parts, pre, merges.left, merges.right, config, folder / "tokenizer.json")
    write_tables(folder / TABLES_NAME, make_tables(vocabulary, merges))
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
        if len(token) > LONGEST_TOKEN:
            raise SourceError(f"tokenizer.ggml.tokens: {place} has {len(token):,} characters. {CONVERT_AGAIN}")
        if token and first.setdefault(token, place) != place:
            raise SourceError(f"tokenizer.ggml.tokens: {first[token]} and {place} are both {token!r}. {CONVERT_AGAIN}")
    for place, kind in enumerate(parts.types):
        if kind not in KINDS or (kind == BYTE and not BYTE_TOKEN.fullmatch(parts.tokens[place])):
            fact = f"{place} is {parts.tokens[place]!r} of type {kind}, which it cannot be"
            raise SourceError(f"tokenizer.ggml.token_type: {fact}. {CONVERT_AGAIN}")
    for name, token_id in parts.ids.items():
        if not 0 <= token_id < count:
            raise SourceError(f"tokenizer.ggml.{name}_token_id is {token_id}, there are {count:,} tokens. {CONVERT_AGAIN}")
    try:
        "".join((*parts.tokens, parts.chat_template)).encode("utf-8")
    except UnicodeEncodeError as error:
        raise SourceError(
            f"tokenizer.ggml.tokens, or the chat template: a lone surrogate ({error.reason}). {CONVERT_AGAIN}"
        ) from None
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


def _config(parts: TokenizerParts, pre: PreTokenizer, vocabulary: Vocabulary) -> TokenizerConfig:
    is_spm = vocabulary.symbols == "characters"
    defaults = {"bos": 1, "eos": 2, "unknown": 0} if is_spm else {}  # SentencePiece's own ids, where a file names none
    ids = {**{name: value for name, value in defaults.items() if value < len(parts.tokens)}, **parts.ids}
    add_bos = parts.flags.get("add_bos", pre.add_bos)
    if add_bos and "bos" not in ids:
        raise SourceError(f"tokenizer.ggml.bos_token_id is missing, and add_bos_token is set. {CONVERT_AGAIN}")
    return TokenizerConfig(
        symbols=vocabulary.symbols,
        split=pre.split,
        whole_pieces=pre.whole_pieces,
        space_follows=space_follows(vocabulary) if is_spm else None,
        space_prefix="sections" if is_spm and parts.flags.get("add_space_prefix", True) else "none",
        nfc=pre.nfc,
        strip_left=(),
        strip_right=(),
        vocab_size=len(parts.tokens),
        bos_token_id=ids.get("bos"),
        eos_token_ids=end_ids(vocabulary, ids.get("eos"), {ids[name] for name in ("eot", "eom") if name in ids}),
        unk_token_id=ids.get("unknown"),
        pad_token_id=ids.get("padding"),
        add_bos=add_bos,
        chat_template=None,
    )


def _merges_of_bytes(parts: TokenizerParts) -> Merges:
    """Byte-level BPE: the merges are in the file."""
    ids = {token: place for place, token in enumerate(parts.tokens) if is_mergeable(token, parts.types[place])}
    pairs: dict[tuple[int, int], int] = {}
    for line in parts.merges:
        left, _, right = line.partition(" ")
        if left not in ids or right not in ids or left + right not in ids:
            part = next(text for text in (left, right, left + right) if text not in ids)
            raise SourceError(f"tokenizer.ggml.merges: {line!r} needs {part!r}, which is no token. {CONVERT_AGAIN}")
        pairs.setdefault((ids[left], ids[right]), ids[left + right])
    symbols = {byte: ids[char] for char, byte in byte_characters().items() if char in ids}
    both = np.array(list(pairs), np.int64).reshape(-1, 2)
    return Merges(both[:, 0], both[:, 1], np.array(list(pairs.values()), np.int64), np.arange(len(pairs)), symbols)


def _merges_of_scores(parts: TokenizerParts) -> Merges:
    """SentencePiece BPE: every split of every token, ranked by the token's score."""
    ids = {token: place for place, token in enumerate(parts.tokens) if is_mergeable(token, parts.types[place])}
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
