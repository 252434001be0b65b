"""A tokenizer from the files of a Hugging Face folder. Owns: the model and the added tokens of tokenizer.json, the files of a
package's tokenizer folder. Needs: tokenizer_pipeline, tokenizer_files. Never: text at run time (edge/text).

The ids of text are those of the `tokenizers` library on the same file; where it would make a control token of text by merging,
ours stays text.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edge.errors import SourceError
from edge.text.pieces import BYTE_CODES, SPACE
from edge.text.tables import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, write_tables
from edge.text.tokenizer import TABLES_NAME
from edge.text.tokenizer_config import TokenizerConfig, write_config
from engines.sources.base import TokenizerFiles
from engines.sources.folder_json import read_object
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
from engines.sources.tokenizer_files import TEMPLATE, NamedTokens, is_unicode, read_named_tokens
from engines.sources.tokenizer_pipeline import USE_ANOTHER, Pipeline, read_bos, read_pipeline

FILE_NAME = "tokenizer.json"
LARGEST_BYTES = 256 << 20  # the largest vocabularies (262,144 tokens) take 33 MB
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
FETCH_AGAIN = "Fetch the file again"


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A token that is matched in the raw text."""

    id: int
    content: str
    special: bool
    strip_left: bool
    strip_right: bool


@dataclass(frozen=True, slots=True)
class FolderTokenizer:
    """A tokenizer as read: what a package's tokenizer folder is made of."""

    vocabulary: Vocabulary
    merges: Merges
    config: TokenizerConfig
    chat_template: str  # "": a base model


def write_folder_tokenizer(files: TokenizerFiles, folder: Path) -> TokenizerConfig:
    """Writes tables.bin, tokenizer_config.json and chat_template.jinja, where the model has one, and copies tokenizer.json into
    `folder`, which exists. SourceError where a file is missing, broken or not of a kind that is read."""
    read = read_tokenizer(files.folder, files.vocab_size)
    write_tables(folder / TABLES_NAME, make_tables(read.vocabulary, read.merges))
    write_config(folder, read.config)
    if read.chat_template:
        (folder / TEMPLATE).write_text(read.chat_template, encoding="utf-8", newline="")
    shutil.copyfile(files.folder / FILE_NAME, folder / FILE_NAME)
    return read.config


def read_tokenizer(folder: Path, vocab_size: int) -> FolderTokenizer:
    """The tokenizer of a folder for a model of `vocab_size` embeddings. SourceError as above."""
    path = folder / FILE_NAME
    values = read_object(path, LARGEST_BYTES)
    named = read_named_tokens(folder)
    try:
        pipeline = read_pipeline(values.get("normalizer"), values.get("pre_tokenizer"))
        model = _model(values.get("model"), pipeline)
        added = _added_tokens(values.get("added_tokens"), model["vocab"], is_changed=pipeline.symbols == "characters")
        vocabulary = _vocabulary(model, added, pipeline, vocab_size)
        merges = _merges(model, vocabulary)
        config = _config(vocabulary, pipeline, added, named, read_bos(values.get("post_processor")))
    except SourceError as error:
        raise SourceError(f"{path}: {error}") from error
    return FolderTokenizer(vocabulary, merges, config, named.chat_template)


def _model(model: Any, pipeline: Pipeline) -> dict[str, Any]:
    """The part that merges, checked to be a BPE that works as ours does."""
    if not isinstance(model, dict):
        raise SourceError(f"model: is missing. {FETCH_AGAIN}")
    kind = model.get("type", "BPE" if "merges" in model else None)  # old files do not name it
    if kind != "BPE":
        raise SourceError(f"model: is {kind!a}; BPE is read. {USE_ANOTHER}")
    falls_back = pipeline.symbols == "characters"
    wanted = (
        ("dropout", model.get("dropout") or None, None),
        ("continuing_subword_prefix", model.get("continuing_subword_prefix") or None, None),
        ("end_of_word_suffix", model.get("end_of_word_suffix") or None, None),
        ("byte_fallback", bool(model.get("byte_fallback")), falls_back),
        ("ignore_merges", bool(model.get("ignore_merges")) and falls_back, False),
    )
    for key, found, read in wanted:
        if found != read:
            fact = f"{key} is {str(model.get(key))[:40]!a} for a vocabulary of {pipeline.symbols}"
            raise SourceError(f"model: {fact}. {USE_ANOTHER}")
    vocab = model.get("vocab")
    if not isinstance(vocab, dict) or not all(type(place) is int and place >= 0 for place in vocab.values()):
        raise SourceError(f"model.vocab: does not give ids by token. {FETCH_AGAIN}")
    if not isinstance(model.get("merges"), list):
        raise SourceError(f"model.merges: is no list. {FETCH_AGAIN}")
    return model


def _added_tokens(values: Any, vocab: dict[str, int], *, is_changed: bool) -> list[AddedToken]:
    """`is_changed`: text is changed before its tokens are sought, so that the two orders of doing both differ."""
    found: list[AddedToken] = []
    if not isinstance(values, list | None):
        raise SourceError(f"added_tokens: is no list. {FETCH_AGAIN}")
    for value in values or ():
        if not isinstance(value, dict) or not isinstance(value.get("content"), str) or type(value.get("id")) is not int:
            raise SourceError(f"added_tokens: {str(value)[:80]!a} has no id and content. {FETCH_AGAIN}")
        content, place = value["content"], value["id"]
        single, left, right, normalised, special = (bool(value.get(flag, False)) for flag in FLAGS)
        where = f"added_tokens: {content[:60]!a}"
        if vocab.get(content, place) != place or place < 0:
            raise SourceError(f"{where} has the id {place}, model.vocab says {vocab.get(content)}. {FETCH_AGAIN}")
        if single:
            raise SourceError(f"{where} counts only as a word of its own (single_word), which is not read. {USE_ANOTHER}")
        if normalised and is_changed:
            step = "Set normalized to false for it, as the model was trained"
            raise SourceError(f"{where} is sought behind the normalizer, with {content[:60]!a} itself changed by it. {step}")
        found.append(AddedToken(place, content, special, left, right))
    return found


def _vocabulary(model: dict[str, Any], added: list[AddedToken], pipeline: Pipeline, vocab_size: int) -> Vocabulary:
    """Tokens and kinds by id. An id without a token, as where an embedding was padded, is unused; an added token without an
    embedding is left out."""
    tokens, kinds = [""] * vocab_size, [UNUSED] * vocab_size
    for token, place in model["vocab"].items():
        if place >= vocab_size:
            raise SourceError(f"model.vocab: {token[:60]!a} has the id {place:,}, the model {vocab_size:,}. {FETCH_AGAIN}")
        if kinds[place] != UNUSED or not is_unicode(token):
            fact = f"{token[:60]!a} is not valid text, or has the id of {tokens[place][:60]!a}"
            raise SourceError(f"model.vocab: {fact}. {FETCH_AGAIN}")
        is_byte = pipeline.symbols == "characters" and BYTE_TOKEN.fullmatch(token) is not None
        tokens[place], kinds[place] = token, BYTE if is_byte else NORMAL
    for each in added:
        if each.id >= vocab_size:
            continue
        if tokens[each.id] not in ("", each.content) or not each.content or not is_unicode(each.content):
            raise SourceError(f"added_tokens: {each.content[:60]!a} is not valid text, or has the id of another. {FETCH_AGAIN}")
        if SPACE in each.content and not each.special and kinds[each.id] == NORMAL:
            continue  # Gemma's runs of spaces: text has other spaces when these are sought, and its merges make them first
        kind = CONTROL if each.special else USER_DEFINED
        tokens[each.id], kinds[each.id] = each.content, UNKNOWN if each.content == model.get("unk_token") else kind
    if pipeline.symbols == "bytes" and model.get("unk_token") and not byte_characters().keys() <= model["vocab"].keys():
        raise SourceError(f"model.unk_token: stands for bytes that the vocabulary lacks, which is not read. {USE_ANOTHER}")
    return Vocabulary(tokens, kinds, pipeline.symbols, bool(model.get("ignore_merges")))


def _merges(model: dict[str, Any], vocabulary: Vocabulary) -> Merges:
    """The merges of the file, best first, without those that would make a control token of text."""
    ids: dict[str, int] = model["vocab"]
    pairs: dict[tuple[int, int], tuple[int, int]] = {}
    for rank, line in enumerate(model["merges"]):
        parts = line.split(" ") if isinstance(line, str) else line
        if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(part, str) for part in parts):
            raise SourceError(f"model.merges: {str(line)[:80]!a} is not two tokens. {FETCH_AGAIN}")
        left, right = parts
        lacking = next((text for text in (left, right, left + right) if text not in ids), None)
        if lacking is not None:
            raise SourceError(f"model.merges: {left[:40]!a} {right[:40]!a} needs {lacking[:60]!a}, no token. {FETCH_AGAIN}")
        if all(is_mergeable(text, vocabulary.kinds[ids[text]]) for text in (left, right, left + right)):
            pairs[ids[left], ids[right]] = rank, ids[left + right]  # the last of equal ones counts, as in the library
    if vocabulary.symbols == "bytes":
        symbols = {byte: ids[char] for char, byte in byte_characters().items() if char in ids}
    else:
        symbols = {ord(text): at for text, at in ids.items() if len(text) == 1 and is_mergeable(text, vocabulary.kinds[at])}
        symbols |= _byte_symbols(ids)
    left_right = np.array(list(pairs), np.int64).reshape(-1, 2)
    rank_result = np.array(list(pairs.values()), np.int64).reshape(-1, 2)
    return Merges(left_right[:, 0], left_right[:, 1], rank_result[:, 1], rank_result[:, 0], symbols)


def _byte_symbols(ids: dict[str, int]) -> dict[int, int]:
    """The tokens of single bytes. Gemma's first ones have a tab for <0x09>: no other character holds an ASCII byte."""
    found = {byte: ids.get(f"<0x{byte:02X}>", ids.get(chr(byte)) if byte < 0x80 else None) for byte in range(256)}
    missing = [f"<0x{byte:02X}>" for byte, place in found.items() if place is None]
    if missing:
        raise SourceError(f"model.vocab: lacks {len(missing)} byte tokens, {missing[0]} first. {USE_ANOTHER}")
    return {BYTE_CODES + byte: place for byte, place in found.items() if place is not None}


def _config(
    vocabulary: Vocabulary, pipeline: Pipeline, added: list[AddedToken], named: NamedTokens, bos: str | None
) -> TokenizerConfig:
    """`bos`: what the post-processor puts in front of text; tokenizer_config.json may say otherwise, and wins, as in
    transformers."""
    matched = [each for each in added if each.id < len(vocabulary.tokens)]
    places = {token: place for place, token in enumerate(vocabulary.tokens) if token}
    ids = {name: places[text] for name, text in named.texts.items() if text in places}
    bos_id = ids.get("bos", named.bos_id) if bos is None else places.get(bos)
    add_bos = bos is not None if named.adds_bos is None else named.adds_bos
    ends = set(named.ends)
    for place in (*ends, *([] if bos_id is None else [bos_id])):
        if place >= len(vocabulary.tokens):
            raise SourceError(f"eos_token_id, bos_token_id: {place:,} is no token of {len(vocabulary.tokens):,}. {FETCH_AGAIN}")
    if add_bos and bos_id is None:
        raise SourceError(f"a token is to begin every text, and which it is no file says. Name it as bos_token. {FETCH_AGAIN}")
    return TokenizerConfig(
        symbols=vocabulary.symbols,
        split=pipeline.split,
        whole_pieces=vocabulary.whole_pieces,
        space_follows=space_follows(vocabulary) if vocabulary.symbols == "characters" else None,
        space_prefix=pipeline.space_prefix,
        nfc=pipeline.nfc,
        strip_left=tuple(each.id for each in matched if each.strip_left),
        strip_right=tuple(each.id for each in matched if each.strip_right),
        vocab_size=len(vocabulary.tokens),
        bos_token_id=bos_id,
        eos_token_ids=end_ids(vocabulary, ids.get("eos"), ends),
        unk_token_id=ids.get("unk"),
        pad_token_id=ids.get("pad"),
        add_bos=add_bos,
        chat_template=None,
    )
