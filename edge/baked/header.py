"""The file of a baked prefix: NAME.pages. Owns: its layout, the checks of a header. Needs: contract, jsons. Never: a package.

    magic 8 bytes | bytes of the header, uint64 | SHA-256 of the header, 32 bytes | header, JSON in UTF-8 | zeros
    `begin`: extents, each at a multiple of OFFSET_UNIT | zeros to a border of 4,096, where the file ends

Words are page-table words whose offsets count from `begin`. Numbers are little-endian. Cuts share extents: each is there once.
Anybody may have written a file, so nothing of it is used before it is checked; the extents are no more than numbers to an
engine, and their hash is for `edge verify`, so that a large file is opened as quickly as a small one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from edge.contract import PAGE_TOKENS
from edge.errors import PackageError
from edge.hashes import check_sha256
from edge.jsons import parse_json, read_value, write_json
from edge.presets import PresetName
from edge.spec import MAX_CONTEXT, check_range

FORMAT_VERSION = 1
BORDER = 4096  # bytes

_MAGIC = b"EDGEPAGE"
_PREAMBLE = struct.Struct("<8sQ32s")
_LARGEST_HEADER = 256 << 20  # bytes; of 100,000 tokens with five cuts some 3 MB
_MOST_CUTS = 1024


class OtherFormatError(PackageError):
    """Of a file that another version of EdgeZero wrote, and reads."""


@dataclass(frozen=True, slots=True)
class BakedEngine:
    """What computed the pages. All but the instruction set must be what is to read them."""

    model: str  # name in the spec
    weights_sha256: str
    plan_sha256: str
    contract_version: int
    seal_tokens: int
    preset: PresetName
    isa: str  # another one computes other last bits

    def __post_init__(self) -> None:
        check_sha256(self.weights_sha256)
        check_sha256(self.plan_sha256)


@dataclass(frozen=True, slots=True)
class BakedCut:
    """A length at which a prompt may go on by itself."""

    tokens: int
    title: str  # of the section that ends there; "": the end of the prefix
    words: str  # base64 of int32 [groups, tokens / PAGE_TOKENS, 2]; EMPTY for pages that no query at `tokens` or later sees

    def __post_init__(self) -> None:
        check_range("tokens", self.tokens, PAGE_TOKENS, MAX_CONTEXT)
        if self.tokens % PAGE_TOKENS:
            raise ValueError(f"tokens: {self.tokens} is no multiple of {PAGE_TOKENS}")


@dataclass(frozen=True, slots=True)
class BakedHeader:  # `edge bake` writes, everyone reads
    format_version: int
    name: str
    created_by: str  # edge-zero and its version
    engine: BakedEngine
    system: str  # the system message; "": none of our own
    document: str  # in front of the first message, in its turn; "": none
    text: str  # of the chat, as rendered, that `token_ids` stand for
    token_ids: str  # base64 of int32
    cuts: tuple[BakedCut, ...]  # by length
    begin: int  # of the extents in the file
    extent_bytes: int
    extents_sha256: str

    def __post_init__(self) -> None:
        check_sha256(self.extents_sha256)
        for key in ("begin", "extent_bytes"):
            check_range(key, getattr(self, key), BORDER, 1 << 40)
            if getattr(self, key) % BORDER:
                raise ValueError(f"{key}: {getattr(self, key)} is no multiple of {BORDER}")
        lengths = [cut.tokens for cut in self.cuts]
        if not lengths or lengths != sorted(set(lengths)) or len(lengths) > _MOST_CUTS:
            raise ValueError(f"cuts: not 1 to {_MOST_CUTS} ascending lengths")

    @property
    def file_bytes(self) -> int:
        return self.begin + self.extent_bytes

    @property
    def tokens(self) -> int:
        """Tokens whose pages are here."""
        return self.cuts[-1].tokens


def pack_ints(values: np.ndarray | Sequence[int]) -> str:
    """int32 as text of a header."""
    return base64.b64encode(np.ascontiguousarray(values, "<i4").tobytes()).decode("ascii")


def unpack_ints(text: str, key: str, count: int | None = None) -> np.ndarray:
    """int32 [count] of what `pack_ints` gave. ValueError, with the key, where it is something else."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:  # ValueError: not ASCII
        raise ValueError(f"{key}: not base64 ({error})") from None
    if len(data) % 4 or (count is not None and len(data) != 4 * count):
        raise ValueError(f"{key}: {len(data)} bytes" + ("" if count is None else f" for {count} numbers"))
    return np.frombuffer(data, "<i4").astype(np.int32)


def header_bytes(header: BakedHeader) -> bytes:
    """Preamble and header, as they stand in front of `header.begin`."""
    text = write_json(header).encode("utf-8")
    return _PREAMBLE.pack(_MAGIC, len(text), hashlib.sha256(text).digest()) + text


def read_header(file: BinaryIO, place: str) -> BakedHeader:
    """The header of an open file, which is read from its first byte; `place` is for messages. PackageError where it is damaged,
    of another version, or of a file that has another size. Raises OSError."""
    size = file.seek(0, 2)
    file.seek(0)
    preamble = file.read(_PREAMBLE.size)
    if not preamble.startswith(_MAGIC[: len(preamble)]) or not preamble:
        raise PackageError(f"{place}: not a baked prefix{_AGAIN}")
    if len(preamble) < _PREAMBLE.size:
        raise _cut_short(place, size)
    _, length, digest = _PREAMBLE.unpack(preamble)
    if length > _LARGEST_HEADER:
        raise _damaged(place, f"a header of {length} bytes")
    if _PREAMBLE.size + length > size:
        raise _cut_short(place, size)
    text = file.read(length)
    if hashlib.sha256(text).digest() != digest:
        raise _damaged(place, "its header has another SHA-256")
    try:
        header = _parse(text)
    except ValueError as error:  # JsonMismatch is one
        raise _damaged(place, str(error)) from error
    if isinstance(header, int):
        raise OtherFormatError(f"{place}: format {header}, this version reads {FORMAT_VERSION}{_AGAIN}")
    if header.begin < _PREAMBLE.size + length:
        raise _damaged(place, f"extents begin at {header.begin}, in its header")
    if size < header.file_bytes:
        raise _cut_short(place, size, header.file_bytes)
    if size > header.file_bytes:
        raise _damaged(place, f"{size} bytes, its header says {header.file_bytes}")
    return header


# How a prefix that is no good is replaced.
BAKE_COMMAND = "edge bake PACKAGE --name NAME --file FILE --force"
BAKE_AGAIN = f"Bake it again: {BAKE_COMMAND}"
_AGAIN = f". {BAKE_AGAIN}"


def _parse(text: bytes) -> BakedHeader | int:
    """The header, or the version of a format that is not ours."""
    try:
        plain = parse_json(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"its header is no UTF-8: {error.reason}") from None
    if not isinstance(plain, dict):
        raise ValueError("its header holds no keys")
    version: int = read_value(plain.get("format_version"), int, "format_version")
    if version != FORMAT_VERSION:
        return version
    header: BakedHeader = read_value(plain, BakedHeader, "")
    words = (header.name, header.created_by, header.engine.model, header.engine.isa)
    if not all(word.isprintable() for word in words):
        raise ValueError("its header has a name with control characters")
    return header


def _cut_short(place: str, size: int, expected: int | None = None) -> PackageError:
    more = "" if expected is None else f" of {expected}"
    return PackageError(f"{place}: cut short, it has {size} bytes{more}{_AGAIN}")


def _damaged(place: str, fact: str) -> PackageError:
    return PackageError(f"{place}: damaged: {fact}{_AGAIN}")
