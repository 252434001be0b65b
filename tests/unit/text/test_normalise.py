"""What a user may give as text."""

from __future__ import annotations

import pytest

from edge.errors import RequestError
from edge.text.normalise import decode_text, prompt_text


def test_text_becomes_nfc() -> None:
    assert prompt_text("Cafe\u0301") == "Caf\u00e9"
    assert prompt_text("Caf\u00e9".encode()) == "Caf\u00e9"


def test_nothing_is_refused() -> None:
    for empty in ("", b""):
        with pytest.raises(RequestError, match="the message is empty"):
            prompt_text(empty, "the message")


def test_spaces_alone_are_text() -> None:
    assert prompt_text(" \n") == " \n"


@pytest.mark.parametrize("text", ["a\ud800", "\udfff", "\ud83d \ude0a"])
def test_a_lone_surrogate_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(RequestError, match="lone surrogate U\\+D"):
        prompt_text(text)


def test_bytes_that_python_could_not_decode_are_read_as_the_utf8_they_are() -> None:
    assert prompt_text("日本".encode().decode("ascii", "surrogateescape")) == "日本"


def test_bytes_that_are_not_utf8_are_refused_with_their_place() -> None:
    with pytest.raises(RequestError, match="byte 2 \\(0xE6\\)"):
        decode_text(b"ab\xe6\xad", "the prompt")
    with pytest.raises(RequestError, match="U\\+DCE6"):
        prompt_text(b"ab\xe6\xad".decode("utf-8", "surrogateescape"))
