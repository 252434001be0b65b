"""tokenizer.json, the form that other tools read. Owns: the file's keys. Needs: TokenizerParts. Never: the runtime's form
(edge/text/tables.py), which is written beside it from the same parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from edge.text.pieces import SPACE
from edge.text.tables import CONTROL, UNKNOWN, USER_DEFINED
from edge.text.tokenizer_config import TokenizerConfig
from engines.sources.base import TokenizerParts
from engines.sources.pre_tokenizers import PreTokenizer


def write_json(
    parts: TokenizerParts, pre: PreTokenizer, left: np.ndarray, right: np.ndarray, config: TokenizerConfig, path: Path
) -> None:
    """Writes the vocabulary for the `tokenizers` library. `left`, `right` int64 [M]: merges, best first.

    Symbols that are no token cannot stand in this form; merges with one are left out.
    """
    tokens = [token or f"[EMPTY_{place}]" for place, token in enumerate(parts.tokens)]
    count = len(tokens)
    is_spm = config.symbols == "characters"
    merges = [[tokens[a], tokens[b]] for a, b in zip(left.tolist(), right.tolist(), strict=True) if a < count and b < count]
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": tokens[config.unk_token_id] if is_spm and config.unk_token_id is not None else None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": is_spm,
        "byte_fallback": is_spm,
        "ignore_merges": pre.whole_pieces,
        "vocab": {token: place for place, token in enumerate(tokens)},
        "merges": merges,
    }
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(parts, tokens),
        "normalizer": _spm_normalizer(config) if is_spm else None,
        "pre_tokenizer": None if is_spm else _pre_tokenizer(pre),
        "post_processor": _post_processor(config, tokens),
        "decoder": _spm_decoder() if is_spm else _byte_level(),
        "model": model,
    }
    with path.open("w", encoding="utf-8", newline="\n") as file:
        json.dump(tokenizer, file, ensure_ascii=False, separators=(",", ":"))


def _added_tokens(parts: TokenizerParts, tokens: list[str]) -> list[dict[str, Any]]:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [
        {"id": place, "content": tokens[place], **plain, "special": kind != USER_DEFINED}
        for place, kind in enumerate(parts.types)
        if kind in (CONTROL, UNKNOWN, USER_DEFINED)
    ]


def _byte_level() -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def _pre_tokenizer(pre: PreTokenizer) -> dict[str, Any]:
    splits = [{"type": "Split", "pattern": {"Regex": each}, "behavior": "Isolated", "invert": False} for each in pre.split]
    return {"type": "Sequence", "pretokenizers": [*splits, _byte_level()]}


def _spm_normalizer(config: TokenizerConfig) -> dict[str, Any]:
    prefix = [{"type": "Prepend", "prepend": SPACE}] if config.space_prefix != "none" else []
    return {"type": "Sequence", "normalizers": [*prefix, {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}]}


def _spm_decoder() -> dict[str, Any]:
    spaces = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    return {"type": "Sequence", "decoders": [spaces, {"type": "ByteFallback"}, {"type": "Fuse"}]}


def _post_processor(config: TokenizerConfig, tokens: list[str]) -> dict[str, Any] | None:
    if not config.add_bos or config.bos_token_id is None:
        return None
    bos = tokens[config.bos_token_id]
    first, second = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
    special = {"SpecialToken": {"id": bos, "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [special, first],
        "pair": [special, first, second],
        "special_tokens": {bos: {"id": bos, "ids": [config.bos_token_id], "tokens": [bos]}},
    }
