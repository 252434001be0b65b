"""The header of a safetensors file, read and checked. Owns: tensor entries, every bound of the file. Needs: a mapped file.
Never: tensor values.

A file is a length (uint64), so many bytes of JSON, and the values. We read it ourselves, as gguf_header.py does and for its
reasons: all is checked before anything is allocated by a number from the file, a key that stands twice is an error and not
the last of the two, and bytes that belong to no tensor are one too, in front of the values as behind them.
Format: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import math
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge.errors import SourceError
from edge.jsons import JsonMismatch, parse_json

MAX_HEADER_BYTES = 16 << 20  # an entry takes some 130 bytes, the largest files have a few thousand; bounds what we allocate
MAX_NAME_BYTES = 255  # names go into one-line errors
MAX_DIMENSIONS = 8
LENGTH_BYTES = 8
METADATA = "__metadata__"  # texts by name; says nothing that we need
DTYPE_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8, "C64": 8,
}  # fmt: skip
FETCH_AGAIN = "Fetch the file again"
SAVE_AGAIN = "Save the model again, or fetch another file"


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies."""

    name: str
    dtype: str  # F32, BF16 ...
    shape: tuple[int, ...]
    offset: int  # bytes from the start of the file
    byte_count: int


def read_header(path: Path, data: mmap.mmap | bytes) -> dict[str, StoredTensor]:
    """The tensors of the safetensors file `path`, mapped as `data`. SourceError for whatever is wrong."""
    if len(data) < LENGTH_BYTES:
        raise SourceError(f"{path}: has {len(data)} bytes, a safetensors file at least {LENGTH_BYTES + 2}. {FETCH_AGAIN}")
    length = int.from_bytes(data[:LENGTH_BYTES], "little")
    begin = LENGTH_BYTES + length
    if begin > len(data):
        raise SourceError(f"{path}: byte 0: the header needs {length:,} bytes, the file has {len(data):,}. {FETCH_AGAIN}")
    if length > MAX_HEADER_BYTES:
        raise SourceError(f"{path}: byte 0: a header of {length:,} bytes, over {MAX_HEADER_BYTES:,}. {SAVE_AGAIN}")
    try:
        values = parse_json(bytes(data[LENGTH_BYTES:begin]).decode("utf-8"))
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: byte {LENGTH_BYTES + error.start:,}: the header is not UTF-8. {FETCH_AGAIN}") from error
    except JsonMismatch as error:
        raise SourceError(f"{path}: the header: {error}. {SAVE_AGAIN}") from error
    if not isinstance(values, dict):
        raise SourceError(f"{path}: the header holds no tensors by name. {SAVE_AGAIN}")
    tensors = {name: _entry(path, name, value, begin) for name, value in values.items() if name != METADATA}
    _check_cover(path, tensors, begin, len(data))
    return tensors


def _entry(path: Path, name: str, value: Any, begin: int) -> StoredTensor:
    """One entry, checked by itself; `begin`: where the values begin."""
    if not name.isprintable() or not 0 < len(name.encode("utf-8", "replace")) <= MAX_NAME_BYTES:
        raise SourceError(f"{path}: the tensor name {name[:40]!a} is not 1 to {MAX_NAME_BYTES} printable bytes. {SAVE_AGAIN}")
    where = f"{path}: tensor {name}"
    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        raise SourceError(f"{where}: does not say dtype, shape and data_offsets, and these alone. {SAVE_AGAIN}")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise SourceError(f"{where}: has the dtype {str(dtype)[:40]!a}, which is not known. {SAVE_AGAIN}")
    if not _is_counts(shape) or len(shape) > MAX_DIMENSIONS:
        raise SourceError(f"{where}: its shape is not a list of at most {MAX_DIMENSIONS} whole numbers. {SAVE_AGAIN}")
    if 0 in shape:
        raise SourceError(f"{where}: has a dimension of 0: {shape}. {SAVE_AGAIN}")
    if not _is_counts(offsets) or len(offsets) != 2:
        raise SourceError(f"{where}: its data_offsets are not two whole numbers. {SAVE_AGAIN}")
    needed = math.prod(shape) * DTYPE_BYTES[dtype]  # Python integers do not wrap
    if offsets[1] - offsets[0] != needed:
        fact = f"has {offsets[1] - offsets[0]:,} bytes, {dtype} {shape} takes {needed:,}"
        raise SourceError(f"{where}: {fact}. {SAVE_AGAIN}")
    return StoredTensor(name, dtype, tuple(shape), begin + offsets[0], needed)


def _is_counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 63 for item in value)


def _check_cover(path: Path, tensors: dict[str, StoredTensor], begin: int, end: int) -> None:
    """Fails where the tensors do not cover [begin, end) of the file, each byte once."""
    place, last = begin, "the header"
    for entry in sorted(tensors.values(), key=lambda entry: entry.offset):
        if entry.offset + entry.byte_count > end:
            fact = f"tensor {entry.name} ends at byte {entry.offset + entry.byte_count:,}, the file at {end:,}"
            raise SourceError(f"{path}: {fact}. {FETCH_AGAIN}")
        if entry.offset < place:
            raise SourceError(f"{path}: byte {entry.offset:,}: {last} and tensor {entry.name} overlap. {SAVE_AGAIN}")
        if entry.offset > place:
            fact = f"{entry.offset - place:,} bytes between {last} and tensor {entry.name} belong to neither"
            raise SourceError(f"{path}: byte {place:,}: {fact}. {SAVE_AGAIN}")
        place, last = entry.offset + entry.byte_count, f"tensor {entry.name}"
    if place != end:
        raise SourceError(f"{path}: byte {place:,}: {end - place:,} bytes behind {last} belong to no tensor. {SAVE_AGAIN}")
