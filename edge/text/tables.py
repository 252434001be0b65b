"""A vocabulary and its merges as one memory-mapped file. Owns: the layout of tables.bin, read and written. Needs: nothing.
Never: text normalisation, or what a token means.

Why not load tokenizer.json: for 262,144 tokens the `tokenizers` library takes 1.0 s and 320 MB, more memory than the int4
weights of the model that it serves. Here opening takes the time of a mapping, and only the pages that a text touches
become resident.

A symbol is the smallest piece of text: a byte (byte-level models) or a code point (SentencePiece models). A symbol that is
no token by itself, but occurs in merges, has an id behind those of the tokens.

Layout, little-endian: 8 bytes MAGIC, then uint64 counts (tokens, merges, symbols, pieces, specials, text bytes), then the
sections in this order, each starting on 8 bytes:
    text_ends     uint32 [tokens]    end of each token's text in `text`; it starts where the one before ends
    kinds         uint8  [tokens]    token kinds, as GGUF numbers them
    merge_keys    uint64 [merges]    left id << 32 | right id, ascending
    merge_values  uint64 [merges]    rank << 32 | id of the result; the lowest rank merges first, ties leftmost first
    symbol_codes  uint32 [symbols]   byte or code point, ascending
    symbol_ids    uint32 [symbols]
    pieces        uint32 [pieces]    tokens ordered by their text, for models that take a whole piece before they merge
    specials      uint32 [specials]  tokens that are matched in the raw text before anything else
    text          bytes  [text bytes]  what each token decodes to
"""

from __future__ import annotations

import mmap
import struct
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edge.errors import PackageError

MAGIC = b"EDGETOK1"
HEADER = struct.Struct("<8s6Q")
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # kinds
STRUCTURAL = frozenset({UNKNOWN, CONTROL})  # never made by plain text, never shown
ID_BITS = 32
ID_MASK = (1 << ID_BITS) - 1
BUILD_AGAIN = "Build the package again: edge build"
_ItemCode = Literal["B", "I", "Q"]  # of module array
_SECTIONS: tuple[tuple[str, _ItemCode, int], ...] = (  # name, items, which count
    ("text_ends", "I", 0),
    ("kinds", "B", 0),
    ("merge_keys", "Q", 1),
    ("merge_values", "Q", 1),
    ("symbol_codes", "I", 2),
    ("symbol_ids", "I", 2),
    ("pieces", "I", 3),
    ("specials", "I", 4),
    ("text", "B", 5),
)


@dataclass(frozen=True, slots=True)
class TokenTables:
    """The sections of an opened file. Immutable, so any number of threads may read it."""

    text_ends: Sequence[int]
    kinds: Sequence[int]
    merge_keys: Sequence[int]
    merge_values: Sequence[int]
    symbol_codes: Sequence[int]
    symbol_ids: Sequence[int]
    pieces: Sequence[int]
    specials: Sequence[int]
    text: memoryview

    @property
    def token_count(self) -> int:
        return len(self.text_ends)

    def token_text(self, token_id: int) -> bytes:
        """The bytes that a token decodes to; token_id in 0 .. token_count - 1."""
        start = self.text_ends[token_id - 1] if token_id else 0
        return bytes(self.text[start : self.text_ends[token_id]])

    def merge(self, left: int, right: int) -> int | None:
        """rank << 32 | id of the token that two adjacent ids become, or None."""
        key = left << ID_BITS | right
        place = bisect_left(self.merge_keys, key)
        if place < len(self.merge_keys) and self.merge_keys[place] == key:
            return self.merge_values[place]
        return None

    def symbol(self, code: int) -> int | None:
        """The id of a byte or code point, or None where the vocabulary knows none."""
        place = bisect_left(self.symbol_codes, code)
        if place < len(self.symbol_codes) and self.symbol_codes[place] == code:
            return self.symbol_ids[place]
        return None

    def piece(self, text: bytes) -> int | None:
        """The token that is exactly `text`, among `pieces`."""
        place = bisect_left(self.pieces, text, key=self.token_text)
        if place < len(self.pieces) and self.token_text(self.pieces[place]) == text:
            return self.pieces[place]
        return None


def open_tables(path: Path) -> TokenTables:
    """Maps the file. PackageError where it is missing, cut short, or of another layout."""
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        reason = error.strerror if isinstance(error, OSError) else "it is empty"
        raise PackageError(f"{path}: cannot be read: {reason}. {BUILD_AGAIN}") from error
    if len(mapped) < HEADER.size or mapped[: len(MAGIC)] != MAGIC:
        raise PackageError(f"{path}: is no token table of this version ({MAGIC.decode()}). {BUILD_AGAIN}")
    counts = HEADER.unpack_from(mapped)[1:]
    view, place = memoryview(mapped), HEADER.size
    sections: dict[str, memoryview] = {}
    for name, code, count_index in _SECTIONS:
        place = _aligned(place)
        end = place + counts[count_index] * array(code).itemsize
        if end > len(mapped):
            fact = f"{name} ends at byte {end:,}, the file at {len(mapped):,}"
            raise PackageError(f"{path}: {fact}: it was cut short. {BUILD_AGAIN}")
        sections[name] = view[place:end].cast(code)
        place = end
    return TokenTables(**sections)


def forget_pages(tables: TokenTables) -> None:
    """Pages of the file that were only looked through need not stay in memory: those that a text touches come back."""
    if isinstance(mapped := tables.text.obj, mmap.mmap):
        mapped.madvise(mmap.MADV_DONTNEED)


def write_tables(path: Path, tables: TokenTables) -> None:
    """Writes the file. The caller has sorted merge_keys, symbol_codes and pieces."""
    sections = [(name, code, getattr(tables, name)) for name, code, _ in _SECTIONS]
    counts = (len(tables.text_ends), len(tables.merge_keys), len(tables.symbol_codes), len(tables.pieces), len(tables.specials),
              len(tables.text))  # fmt: skip
    with path.open("wb") as file:
        file.write(HEADER.pack(MAGIC, *counts))
        for _, code, values in sections:
            file.write(b"\0" * (_aligned(file.tell()) - file.tell()))
            file.write(array(code, values).tobytes())


def _aligned(place: int) -> int:
    return -(-place // 8) * 8
