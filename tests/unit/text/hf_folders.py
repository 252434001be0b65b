"""Tokenizer files of Hugging Face folders, changed as a test wants. Owns: folder_of, edit, made, refused.
Needs: the fixtures of tokenizers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge.errors import SourceError
from edge.text.tokenizer import Tokenizer
from engines.sources.base import TokenizerFiles
from engines.sources.hf_tokenizer import write_folder_tokenizer

FIXTURES = Path(__file__).parents[2] / "fixtures" / "tokenizers"
ROWS = 640  # of the embedding: more than any fixture has tokens
Json = dict[str, Any]


def folder_of(family: str, folder: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / family, folder / family))


def edit(path: Path, change: Callable[[Json], Any]) -> None:
    values = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    change(values)
    path.write_text(json.dumps(values), encoding="utf-8")


def made(source: Path, out: Path, rows: int = ROWS) -> Tokenizer:
    out.mkdir()
    write_folder_tokenizer(TokenizerFiles(source, rows), out)
    return Tokenizer.open(out)


def refused(source: Path, out: Path, rows: int = ROWS) -> str:
    with pytest.raises(SourceError) as error:
        made(source, out, rows)
    message = str(error.value)
    assert message.startswith(str(source)) and "\n" not in message and ". " in message
    assert not list(out.iterdir())
    return message
