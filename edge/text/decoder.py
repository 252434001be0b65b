"""Bytes of tokens to text, as they come. Owns: bytes that are not yet a character. Needs: nothing. Never: token ids."""

from __future__ import annotations

import codecs


class TextDecoder:
    """UTF-8, a piece at a time, append-only: the joined results equal `decode_bytes` of all pieces.

    Bytes that may still become a character are held back. Bytes that cannot become U+FFFD, one for each maximal subpart
    (Unicode 15, section 3.9, "U+FFFD Substitution of Maximal Subparts").
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, data: bytes) -> str:
        """The characters that `data` completes."""
        return self._decoder.decode(data)

    def finish(self) -> str:
        """What is still held back, as U+FFFD; "" where nothing is. The decoder is then as new."""
        return self._decoder.decode(b"", final=True)


def decode_bytes(data: bytes) -> str:
    """All bytes at once, invalid ones as TextDecoder shows them."""
    return data.decode("utf-8", "replace")
