"""Small tokenizers, written once a run: do not change the files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # so that tests here may say `from tiny_tokenizers import written`

from tiny_tokenizers import parts_of, written
from vocabulary import BYTE_LEVEL, CHATML, SENTENCE_PIECE

from edge.text.template import ChatTemplate
from edge.text.tokenizer import Tokenizer
from engines.sources.base import TokenizerParts
from engines.sources.gguf_tokenizer import write_tokenizer


@pytest.fixture(scope="session")
def byte_parts() -> TokenizerParts:
    """Byte-level BPE: <|endoftext|> <|im_start|> <|im_end|>, 256 bytes, a few merges; ChatML."""
    return parts_of(BYTE_LEVEL, CHATML)


@pytest.fixture(scope="session")
def piece_parts() -> TokenizerParts:
    """SentencePiece: <pad> <eos> <bos> <unk> <start_of_turn> <end_of_turn>, 256 bytes, pieces; no template."""
    return parts_of(SENTENCE_PIECE)


@pytest.fixture(scope="session")
def byte_folder(byte_parts: TokenizerParts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("byte")
    write_tokenizer(byte_parts, folder)
    return folder


@pytest.fixture(scope="session")
def bytes_tokenizer(byte_folder: Path) -> Tokenizer:
    return Tokenizer.open(byte_folder)


@pytest.fixture(scope="session")
def chatml(byte_folder: Path, bytes_tokenizer: Tokenizer) -> ChatTemplate:
    return ChatTemplate.open(byte_folder, bytes_tokenizer)


@pytest.fixture(scope="session")
def piece_tokenizer(piece_parts: TokenizerParts, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return written(piece_parts, tmp_path_factory.mktemp("piece"))
