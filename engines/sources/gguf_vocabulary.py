"""The tokenizer parts of a GGUF file, as it carries them. Owns: the names of their keys. Needs: keys. Never: encoding."""

from __future__ import annotations

import numpy as np

from engines.sources.base import TokenizerParts
from engines.sources.keys import Keys

PREFIX = "tokenizer.ggml."
FIRST_TYPE, LAST_TYPE = 0, 6  # undefined (taken as normal), normal, unknown, control, user defined, unused, byte
IDS = {  # our name -> key; "seperator" is how the format spells it
    "bos": "bos_token_id", "eos": "eos_token_id", "eot": "eot_token_id", "eom": "eom_token_id", "mask": "mask_token_id",
    "unknown": "unknown_token_id", "padding": "padding_token_id", "separator": "seperator_token_id",
}  # fmt: skip
FLAGS = {
    "add_bos": "add_bos_token", "add_sep": "add_sep_token",
    "add_space_prefix": "add_space_prefix", "remove_extra_whitespaces": "remove_extra_whitespaces",
}  # fmt: skip


def read_tokenizer_parts(keys: Keys, vocab_size: int) -> TokenizerParts:
    """The parts, checked against each other and the vocabulary. A file without a tokenizer gives empty ones."""
    tokens = keys.texts(PREFIX + "tokens")
    scores = keys.numbers(PREFIX + "scores", "f")
    types = keys.numbers(PREFIX + "token_type", "iu")
    for key, length in (("tokens", len(tokens)), ("scores", scores.size), ("token_type", types.size)):
        if length not in (0, vocab_size):
            raise keys.error(PREFIX + key, f"has {length:,} entries, the embedding {vocab_size:,} rows")
    if types.size and not (int(types.min()) >= FIRST_TYPE and int(types.max()) <= LAST_TYPE):
        raise keys.error(PREFIX + "token_type", f"holds a type outside {FIRST_TYPE} to {LAST_TYPE}")
    if not np.isfinite(scores).all():
        raise keys.error(PREFIX + "scores", "holds a value that is not a finite number")
    return TokenizerParts(
        model=keys.text_or(PREFIX + "model", ""),
        pre=keys.text_or(PREFIX + "pre", ""),
        tokens=tokens,
        scores=tuple(scores.tolist()),
        types=tuple(types.tolist()),
        merges=keys.texts(PREFIX + "merges"),
        ids={name: keys.index(PREFIX + key, vocab_size) for name, key in IDS.items() if PREFIX + key in keys},
        flags={name: keys.flag(PREFIX + key) for name, key in FLAGS.items() if PREFIX + key in keys},
        chat_template=keys.text_or("tokenizer.chat_template", ""),
    )
