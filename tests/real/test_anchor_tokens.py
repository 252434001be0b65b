"""Anchors of real pages in tokens of real models: the token that an anchor is mapped to holds the anchor's character."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gguf", reason="needs the build extra: gguf")

from edge.anchors.config import AnchorConfig
from edge.anchors.detect import find_anchors
from edge.anchors.phrases import load_phrases
from edge.text.tokenizer import Tokenizer
from engines.sources.base import open_source
from engines.sources.gguf_tokenizer import write_tokenizer

PAGES = sorted((Path(__file__).parents[1] / "fixtures" / "anchors").glob("features.*.txt"))


def test_an_anchor_is_in_the_token_that_holds_its_character_in_byte_level_bpe(smollm2_gguf: Path, tmp_path: Path) -> None:
    check_anchors(smollm2_gguf, tmp_path)


def test_an_anchor_is_in_the_token_that_holds_its_character_in_sentencepiece(gemma3_gguf: Path, tmp_path: Path) -> None:
    check_anchors(gemma3_gguf, tmp_path)


def check_anchors(path: Path, tmp_path: Path) -> None:
    write_tokenizer(open_source(path).metadata.tokenizer, tmp_path, str(path))
    tokenizer = Tokenizer.open(tmp_path)
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        anchors = find_anchors(text, AnchorConfig.load(), load_phrases())
        located = tokenizer.encode_prompt_located(text)
        assert located.ids == tokenizer.encode_prompt(text)
        sizes = [len(tokenizer.token_bytes(token, specials=False)) for token in located.ids]  # a BOS has none
        ends = np.cumsum(sizes)
        assert ends[-1] == len(text.encode()), "neither vocabulary puts a space in front, or lacks a byte of these pages"
        assert len(anchors) == 14
        for place, token in zip(anchors.positions.tolist(), located.tokens_at(anchors.positions).tolist(), strict=True):
            byte = len(text[:place].encode())
            assert ends[token] - sizes[token] <= byte < ends[token], (page.name, place)
            assert "#" in tokenizer.token_text(located.ids[token])
