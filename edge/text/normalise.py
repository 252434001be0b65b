"""What a user may give as text. Owns: the checks in front of the tokenizer. Needs: nothing. Never: token ids."""

from __future__ import annotations

import unicodedata

from edge.errors import RequestError


def prompt_text(given: str | bytes, what: str = "the prompt") -> str:
    """`given` as NFC text that UTF-8 can hold. RequestError where it cannot be that, or is empty.

    Bytes of a command line that Python could not decode come as lone surrogates; where together they are UTF-8 (a C locale)
    they are read as that.
    """
    text = decode_text(given, what) if isinstance(given, bytes) else _recover(given)
    check_text(text, what)
    if not text:
        raise RequestError(f"{what} is empty. Give at least one character")
    return unicodedata.normalize("NFC", text)


def decode_text(data: bytes, what: str) -> str:
    """Strict UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        place = f"byte {error.start} (0x{data[error.start]:02X})"
        raise RequestError(f"{what}: {place} is not UTF-8. Convert it to UTF-8") from error


def check_text(text: str, what: str) -> None:
    """RequestError for a lone surrogate: no UTF-8, and so no token, can hold it."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise RequestError(f"{what}: character {error.start} is the lone surrogate U+{code:04X}. Give valid Unicode") from error


def _recover(text: str) -> str:
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        return text
