"""Tokenizers of the tiny models, from parts, as a build writes them. Owns: parts_of, with_tokens, written."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tiny"))  # the vocabularies of the tiny models

from vocabulary import Vocabulary

from edge.text.tokenizer import Tokenizer
from engines.sources.base import TokenizerParts
from engines.sources.gguf_tokenizer import write_tokenizer

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6


def parts_of(vocabulary: Vocabulary, chat_template: str = "") -> TokenizerParts:
    """What a GGUF file with this vocabulary says."""
    ids = {"bos": vocabulary.bos, "eos": vocabulary.eos, "unknown": vocabulary.unknown, "padding": vocabulary.padding}
    return TokenizerParts(
        model=vocabulary.model,
        pre=vocabulary.pre,
        tokens=vocabulary.tokens,
        scores=vocabulary.scores,
        types=vocabulary.types,
        merges=vocabulary.merges,
        ids=ids,
        flags={"add_bos": vocabulary.add_bos, "add_space_prefix": False},
        chat_template=chat_template,
    )


def with_tokens(parts: TokenizerParts, *tokens: tuple[str, int, float]) -> TokenizerParts:
    """`parts` with more tokens behind: text, kind, score."""
    return replace(
        parts,
        tokens=(*parts.tokens, *(text for text, _, _ in tokens)),
        types=(*parts.types, *(kind for _, kind, _ in tokens)),
        scores=(*parts.scores, *(score for _, _, score in tokens)) if parts.scores else (),
    )


def written(parts: TokenizerParts, folder: Path) -> Tokenizer:
    """A tokenizer made of `parts`, through its files."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(parts, folder)
    return Tokenizer.open(folder)
