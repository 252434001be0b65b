"""Tables whose numbers point outside of them, and settings that name no token."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_tokenizers import written

from edge.errors import PackageError
from edge.text.tables import TokenTables, open_tables, write_tables
from edge.text.tokenizer import TABLES_NAME, Tokenizer
from edge.text.tokenizer_config import FILE_NAME
from engines.sources.base import TokenizerParts

Change = Callable[[TokenTables], dict[str, Any]]


def changed(values: Any, place: int, value: int) -> list[int]:
    result = list(values)
    result[place] = value
    return result


def refusal(folder: Path, change: Change) -> str:
    tables = open_tables(folder / TABLES_NAME)
    whole = replace(tables, **{name: list(getattr(tables, name)) for name in ("text_ends", "kinds", "specials")})
    write_tables(folder / "new", replace(whole, **change(tables)))
    shutil.move(folder / "new", folder / TABLES_NAME)
    with pytest.raises(PackageError, match=r"tables\.bin: .*edge build") as caught:
        Tokenizer.open(folder)
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (lambda t: {"text_ends": changed(t.text_ends, 5, 1 << 31)}, "do not lie one behind the other"),
        (lambda t: {"text_ends": changed(t.text_ends, -1, len(t.text) + 1)}, "do not lie one behind the other"),
        (lambda t: {"kinds": changed(t.kinds, 3, 7)}, "unknown kind"),
        (lambda t: {"merge_keys": changed(t.merge_keys, 0, (1 << 64) - 1)}, "merges are not in order"),
        (lambda t: {"merge_values": changed(t.merge_values, 0, t.token_count)}, "a merge makes a token that is not there"),
        (lambda t: {"symbol_codes": changed(t.symbol_codes, 0, 1 << 31)}, "symbols are not in order"),
        (lambda t: {"symbol_ids": changed(t.symbol_ids, 9, t.token_count)}, "a symbol names a token that is not there"),
        (lambda t: {"pieces": [t.token_count]}, "pieces names a token that is not there"),
        (lambda t: {"specials": [t.token_count]}, "specials names a token that is not there"),
        (lambda t: {"specials": [3 + 0x80]}, "is not UTF-8"),
        (lambda t: {"text_ends": [0, *list(t.text_ends)[1:]]}, "token 0, looked for in text, has 0 bytes"),
    ],
)
def test_a_number_that_points_outside_is_named(byte_folder: Path, tmp_path: Path, change: Change, fact: str) -> None:
    assert fact in refusal(Path(shutil.copytree(byte_folder, tmp_path / "tokenizer")), change)


def test_a_sentencepiece_vocabulary_without_a_byte_is_refused(piece_parts: TokenizerParts, tmp_path: Path) -> None:
    folder = tmp_path / "tokenizer"
    written(piece_parts, folder)
    fact = refusal(folder, lambda t: {"symbol_codes": t.symbol_codes[:-1], "symbol_ids": t.symbol_ids[:-1]})
    assert "not every byte has a token" in fact


@pytest.mark.parametrize("key", ["bos_token_id", "unk_token_id", "pad_token_id", "eos_token_ids"])
@pytest.mark.parametrize("token_id", [-1, 1 << 40])
def test_a_token_that_is_not_there_is_no_setting(byte_folder: Path, tmp_path: Path, key: str, token_id: int) -> None:
    folder = Path(shutil.copytree(byte_folder, tmp_path / "tokenizer"))
    plain = json.loads((folder / FILE_NAME).read_bytes())
    plain[key] = [token_id] if isinstance(plain[key], list) else token_id
    (folder / FILE_NAME).write_text(json.dumps(plain))
    with pytest.raises(PackageError, match=f"token id {token_id} is outside a vocabulary"):
        Tokenizer.open(folder)
