"""Reading the file of `edge chat --file`."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.cli.document import read_document
from edge.errors import RequestError


def too_long(count: int) -> None:
    if count > 1 << 20:
        raise RequestError("too long")


def test_a_file_that_is_no_text_is_not_said_to_be_too_long(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(b"text\xb0" + bytes(3 << 20))
    with pytest.raises(RequestError, match=r"program: byte 4 \(0xB0\) is not UTF-8"):
        read_document(path, too_long)


def test_a_character_across_two_blocks_is_text(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"x" * ((1 << 20) - 1) + "\u00e4".encode())
    assert read_document(path, lambda _: None).endswith("x\u00e4")
    with pytest.raises(RequestError, match="text: too long"):
        read_document(path, too_long)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cannot be read: Is a directory"):
        read_document(tmp_path, too_long)
