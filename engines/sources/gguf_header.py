"""The header of a GGUF file, read and checked. Owns: keys, tensor entries, every bound of the file. Needs: a mapped file.
Never: tensor values.

The whole header is checked here, before anything is allocated by a number from the file: counts against the bytes that
are left, lengths, types, dimensions, offsets. We walk it ourselves and not with gguf.GGUFReader because two parsers
of one hostile file can disagree, and because that reader keeps an array a token: 0.9 GB and seconds for 262,144 tokens.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edge.errors import SourceError

Value = int | float | bool | str | np.ndarray | tuple[str, ...]

VERSIONS = (2, 3)
MAX_NAME_BYTES = 255  # the format allows keys of 65,535, but no model has one over 100; names go into one-line errors
MAX_HEADER_BYTES = 64 << 20  # the largest vocabularies (262,144 tokens, 280,147 merges) take 8 MB; bounds what we allocate
MAX_DIMENSIONS = 4
DEFAULT_ALIGNMENT = 32
STRING, ARRAY = 8, 9
SCALARS: dict[int, np.dtype[Any]] = {  # value type -> numpy type
    0: np.dtype("u1"), 1: np.dtype("i1"), 2: np.dtype("<u2"), 3: np.dtype("<i2"), 4: np.dtype("<u4"), 5: np.dtype("<i4"),
    6: np.dtype("<f4"), 7: np.dtype("bool"), 10: np.dtype("<u8"), 11: np.dtype("<i8"), 12: np.dtype("<f8"),
}  # fmt: skip
_LENGTH = struct.Struct("<Q")  # of a string
FETCH_AGAIN = "Fetch the file again"
CONVERT_AGAIN = "Convert the model again, or fetch another file"


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where a tensor lies."""

    name: str
    type_name: str  # F32, Q4_K ...
    shape: tuple[int, ...]  # slowest dimension first, as numpy counts: [N outputs, K inputs]
    row_bytes: int  # bytes of one run of the last dimension
    offset: int  # bytes from the start of the file
    byte_count: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """All that a GGUF file says before its tensor values. Every entry lies inside the file and overlaps no other."""

    path: Path
    values: dict[str, Value]
    tensors: dict[str, TensorEntry]


class _Cursor:
    """A place in the file that only moves forward and never past its end."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data, self.place = path, data, 0

    def need(self, count: int, what: str) -> None:
        left = len(self.data) - self.place
        if count > left:
            raise self.error(f"{what} needs {count:,} bytes, the file has {left:,} more", FETCH_AGAIN)
        if self.place + count > MAX_HEADER_BYTES:
            raise self.error(f"with {what} the header grows over {MAX_HEADER_BYTES:,} bytes", CONVERT_AGAIN)

    def error(self, fact: str, step: str) -> SourceError:
        return SourceError(f"{self.path}: byte {self.place:,}: {fact}. {step}")

    def number(self, layout: str, what: str) -> int:
        self.need(struct.calcsize(layout), what)
        (value,) = struct.unpack_from(layout, self.data, self.place)
        self.place += struct.calcsize(layout)
        return int(value)

    def string(self, what: str) -> str:
        length = self.number("<Q", f"the length of {what}")
        self.need(length, what)
        raw = self.data[self.place : self.place + length]
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.error(f"{what} is not valid UTF-8", CONVERT_AGAIN) from error
        self.place += length
        return text

    def name(self, what: str) -> str:
        start = self.place
        text = self.string(what)
        length = self.place - start - 8
        if not 0 < length <= MAX_NAME_BYTES:
            raise self.error(f"{what} is {length:,} bytes long, not 1 to {MAX_NAME_BYTES}", FETCH_AGAIN)
        if not text.isprintable():
            raise self.error(f"{what} has unprintable characters: {text!a}", CONVERT_AGAIN)
        return text

    def scalars(self, value_type: int, count: int, what: str) -> np.ndarray:
        dtype = SCALARS[value_type]
        self.need(count * dtype.itemsize, what)
        array = np.frombuffer(self.data, np.uint8, count * dtype.itemsize, self.place)
        if dtype == np.bool_ and array.max(initial=0) > 1:
            raise self.error(f"{what} holds a truth value that is neither 0 nor 1", CONVERT_AGAIN)
        self.place += count * dtype.itemsize
        return array.view(dtype).copy()  # a view would keep the mapping alive

    def value(self, value_type: int, what: str) -> Value:
        if value_type == STRING:
            return self.string(what)
        if value_type == ARRAY:
            return self.array(what)
        if value_type not in SCALARS:
            raise self.error(f"{what} has the unknown value type {value_type}", CONVERT_AGAIN)
        item: int | float | bool = self.scalars(value_type, 1, what)[0].item()
        return item

    def array(self, what: str) -> Value:
        item_type, count = self.number("<I", f"the type of {what}"), self.number("<Q", f"the length of {what}")
        if item_type in SCALARS:
            return self.scalars(item_type, count, what)
        if item_type != STRING:
            kind = "an array of arrays" if item_type == ARRAY else f"an array of the unknown type {item_type}"
            raise self.error(f"{what} is {kind}", CONVERT_AGAIN)
        self.need(count * 8, what)
        strings = self.strings(count)
        return strings if strings is not None else tuple(self.string(f"{what}[{index}]") for index in range(count))

    def strings(self, count: int) -> tuple[str, ...] | None:
        """So many strings in a row, as `string` reads them one by one, in a fifth of its time: vocabularies have 262,144. None,
        and the place unmoved, where something is wrong with one: `string` then says what, and with which."""
        data, place, end = self.data, self.place, min(len(self.data), MAX_HEADER_BYTES)
        found = []
        try:
            for _ in range(count):
                (length,) = _LENGTH.unpack_from(data, place)
                begin, place = place + 8, place + 8 + length
                if place > end:
                    return None
                found.append(data[begin:place].decode("utf-8"))
        except (struct.error, UnicodeDecodeError):
            return None
        self.place = place
        return tuple(found)


def read_header(path: Path, data: mmap.mmap) -> GgufHeader:
    """Reads and checks the header of the GGUF file `path`, mapped as `data`. Raises SourceError for whatever is wrong."""
    cursor = _Cursor(path, data)
    if cursor.number("<I", "the magic") != int.from_bytes(b"GGUF", "little"):
        raise SourceError(f"{path}: byte 0: not a GGUF file. Give a GGUF file, or fetch it again")
    version = cursor.number("<I", "the version")
    if version not in VERSIONS:
        kind = "big-endian" if version & 0xFFFF == 0 else f"of GGUF version {version}"
        raise SourceError(f"{path}: byte 4: the file is {kind}; versions 2 and 3, little-endian, are read. {CONVERT_AGAIN}")
    tensor_count = cursor.number("<Q", "the tensor count")
    value_count = cursor.number("<Q", "the key count")
    # The smallest key takes 14 bytes (length, one letter, type, one byte), the smallest tensor entry 33.
    cursor.need(value_count * 14 + tensor_count * 33, f"a header of {value_count:,} keys and {tensor_count:,} tensors")
    values: dict[str, Value] = {}
    for index in range(value_count):
        key = cursor.name(f"key {index}")
        if key in values:
            raise cursor.error(f"the key {key} stands twice in the file", CONVERT_AGAIN)
        values[key] = cursor.value(cursor.number("<I", f"the type of {key}"), key)
    drafts: dict[str, TensorEntry] = {}
    for index in range(tensor_count):
        entry = _read_entry(cursor, index)
        if entry.name in drafts:
            raise cursor.error(f"the tensor {entry.name} stands twice in the file", CONVERT_AGAIN)
        drafts[entry.name] = entry
    return GgufHeader(path, values, _place_tensors(cursor, values, drafts))


def _read_entry(cursor: _Cursor, index: int) -> TensorEntry:
    """One tensor entry, its offset still counted from the start of the tensor data."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    name = cursor.name(f"the name of tensor {index}")
    dimensions = cursor.number("<I", f"the dimension count of {name}")
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise cursor.error(f"{name} has {dimensions} dimensions, not 1 to {MAX_DIMENSIONS}", CONVERT_AGAIN)
    sizes = tuple(cursor.number("<Q", f"dimension {axis} of {name}") for axis in range(dimensions))
    if 0 in sizes:
        raise cursor.error(f"{name} has a dimension of 0: {list(sizes)}", CONVERT_AGAIN)
    type_code = cursor.number("<I", f"the type of {name}")
    offset = cursor.number("<Q", f"the offset of {name}")
    try:
        tensor_type = GGMLQuantizationType(type_code)
        block, block_bytes = GGML_QUANT_SIZES[tensor_type]
    except (ValueError, KeyError) as error:
        raise cursor.error(f"{name} has the unknown tensor type {type_code}", CONVERT_AGAIN) from error
    if sizes[0] % block:
        fact = f"{name} has rows of {sizes[0]:,}, which the blocks of {tensor_type.name} ({block}) do not divide"
        raise cursor.error(fact, CONVERT_AGAIN)
    row_bytes = sizes[0] // block * block_bytes
    byte_count = row_bytes
    for size in sizes[1:]:
        byte_count *= size  # Python integers do not wrap
    return TensorEntry(name, tensor_type.name, tuple(reversed(sizes)), row_bytes, offset, byte_count)


def _place_tensors(cursor: _Cursor, values: dict[str, Value], drafts: dict[str, TensorEntry]) -> dict[str, TensorEntry]:
    """The entries with offsets from the start of the file, each checked to lie inside it and apart from the others."""
    alignment = values.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(alignment) is not int or alignment <= 0 or alignment & (alignment - 1):
        raise SourceError(f"{cursor.path}: general.alignment is {alignment!r}, not a power of two. {CONVERT_AGAIN}")
    base = -(-cursor.place // alignment) * alignment
    file_bytes = len(cursor.data)
    placed: dict[str, TensorEntry] = {}
    for entry in drafts.values():
        begin = base + entry.offset
        where = f"{cursor.path}: byte {begin:,}: tensor {entry.name}"
        if entry.offset % alignment:
            raise SourceError(f"{where} does not start on {alignment} bytes. {CONVERT_AGAIN}")
        if begin + entry.byte_count > file_bytes:
            raise SourceError(f"{where} ends at {begin + entry.byte_count:,}, the file at {file_bytes:,}. {FETCH_AGAIN}")
        placed[entry.name] = TensorEntry(entry.name, entry.type_name, entry.shape, entry.row_bytes, begin, entry.byte_count)
    end, last = 0, ""
    for entry in sorted(placed.values(), key=lambda entry: entry.offset):
        if entry.offset < end:
            raise SourceError(f"{cursor.path}: byte {entry.offset:,}: tensors {last} and {entry.name} overlap. {CONVERT_AGAIN}")
        end, last = entry.offset + entry.byte_count, entry.name
    return placed
