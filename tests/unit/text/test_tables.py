"""The mapped vocabulary file, whole and damaged."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from edge.errors import PackageError
from edge.text.tables import HEADER, open_tables
from edge.text.tokenizer import TABLES_NAME, Tokenizer
from edge.text.tokenizer_config import FILE_NAME, read_config, write_config


@pytest.fixture
def folder(byte_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(byte_folder, tmp_path / "tokenizer"))


def test_what_is_looked_up_is_found(byte_folder: Path) -> None:
    tables = open_tables(byte_folder / TABLES_NAME)
    letters = {byte: tables.symbol(byte) for byte in range(256)}
    assert None not in letters.values()
    assert all(tables.token_text(token) == bytes([byte]) for byte, token in letters.items() if token is not None)
    assert tables.symbol(256) is None
    assert tables.merge(0, 0) is None
    assert tables.token_text(0) == b"<|endoftext|>"


@pytest.mark.parametrize("size", [0, 4, HEADER.size - 1, HEADER.size, 200])
def test_a_table_cut_short_is_refused(folder: Path, size: int) -> None:
    path = folder / TABLES_NAME
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(PackageError, match="edge build") as caught:
        Tokenizer.open(folder)
    assert str(path) in str(caught.value)


def test_a_table_with_enormous_counts_is_refused(folder: Path) -> None:
    path = folder / TABLES_NAME
    data = path.read_bytes()
    path.write_bytes(data[:8] + (2**62).to_bytes(8, "little") + data[16:])
    with pytest.raises(PackageError, match="cut short"):
        Tokenizer.open(folder)


def test_another_version_of_the_table_is_refused(folder: Path) -> None:
    path = folder / TABLES_NAME
    path.write_bytes(b"EDGETOK9" + path.read_bytes()[8:])
    with pytest.raises(PackageError, match="EDGETOK1"):
        Tokenizer.open(folder)


def test_tables_and_config_of_two_vocabularies_are_refused_with_both_sizes(folder: Path) -> None:
    config = read_config(folder)
    write_config(folder, replace(config, vocab_size=config.vocab_size + 1))
    sizes = f"{TABLES_NAME} has {config.vocab_size} tokens, {FILE_NAME} says {config.vocab_size + 1}"
    with pytest.raises(PackageError, match=sizes):
        Tokenizer.open(folder)


@pytest.mark.parametrize("name", [TABLES_NAME, FILE_NAME])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(PackageError, match=name):
        Tokenizer.open(folder)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"symbols": "bytes"}', '{"symbols": 1, "nope": 2}'])
def test_a_config_of_another_form_is_refused(folder: Path, text: str) -> None:
    (folder / FILE_NAME).write_text(text, encoding="utf-8")
    with pytest.raises(PackageError, match=FILE_NAME):
        read_config(folder)
