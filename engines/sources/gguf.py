"""A GGUF file as a Source. Owns: the mapped file, which of its tensors is which. Needs: gguf_header, gguf_blocks, an
architecture. Never: what a tier makes of a tensor."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np

from edge.errors import SourceError
from edge.spec import ModelSpec
from engines.sources.architectures import INTERLEAVED_ROTARY, READERS
from engines.sources.architectures.layout import Place, plan_places, read_dimensions
from engines.sources.base import SourceMetadata, SourceTensor
from engines.sources.gguf_blocks import BLOCK_FORMATS, CHUNK_WEIGHTS, decode_rows, dequantise_rows
from engines.sources.gguf_header import GgufHeader, TensorEntry, read_header
from engines.sources.gguf_vocabulary import read_tokenizer_parts
from engines.sources.keys import Keys

FLOAT_TYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
COMPARED_BYTES = 1 << 24  # of two matrices at a time
EMBEDDING, HEAD = "token_embd.weight", "output.weight"


class GgufSource:
    """Tensors of a GGUF file by canonical name. Values stay in the mapped file until they are read, and are not kept."""

    def __init__(self, header: GgufHeader, data: mmap.mmap, spec: ModelSpec, metadata: SourceMetadata) -> None:
        self.spec = spec
        self.metadata = metadata
        self._path = header.path
        self._entries = header.tensors
        self._data = data
        self._places = plan_places(spec, spec.architecture in INTERLEAVED_ROTARY)
        for name, place in self._places.items():
            self._check_place(name, place)
        known = {place.file_name for place in self._places.values()} | {HEAD}  # a tied file may hold the head once more
        unknown = sorted(self._entries.keys() - known)
        if unknown:
            fact = f"tensor {unknown[0]} is not one of a {spec.architecture} model ({len(unknown)} such)"
            raise SourceError(f"{header.path}: {fact}; answers without it would be wrong. Use another model")

    def tensor_names(self) -> tuple[str, ...]:
        """Canonical names in model order."""
        return tuple(self._places)

    def shape(self, name: str) -> tuple[int, ...]:
        """[N] or [N outputs, K inputs]; reads no values."""
        return self._places[name].shape

    def read(self, name: str) -> SourceTensor:
        """The whole tensor. Float tensors are views of the file, except BF16 and those whose rows are put in order."""
        return self.read_rows(name, 0, self._places[name].shape[0])

    def read_rows(self, name: str, begin: int, end: int) -> SourceTensor:
        """Rows (or items of a vector) [begin, end)."""
        place = self._places[name]
        entry = self._entries[place.file_name]
        assert 0 <= begin < end <= place.shape[0]
        where = f"{self._path}: tensor {entry.name}"
        if entry.type_name in FLOAT_TYPES:
            return SourceTensor(name, self._read_floats(place, entry, begin, end, where), entry.type_name, "", 0.0)
        values, rounding = decode_rows(entry.type_name, self._raw(entry), _file_rows(place, begin, end), where)
        return SourceTensor(name, values, entry.type_name, rounding.note, rounding.relative_error)

    def read_exact(self, name: str, begin: int, end: int) -> np.ndarray:
        """Rows [begin, end) as float32, without the rounding of scales that read_rows() reports."""
        place = self._places[name]
        entry = self._entries[place.file_name]
        if entry.type_name in FLOAT_TYPES:
            return self.read_rows(name, begin, end).to_float32()
        return dequantise_rows(entry.type_name, self._raw(entry), _file_rows(place, begin, end))

    def _raw(self, entry: TensorEntry) -> np.ndarray:
        """uint8 [rows, row bytes], a view of the file."""
        return np.frombuffer(self._data, np.uint8, entry.byte_count, entry.offset).reshape(-1, entry.row_bytes)

    def _read_floats(self, place: Place, entry: TensorEntry, begin: int, end: int, where: str) -> np.ndarray:
        dtype = FLOAT_TYPES[entry.type_name]
        count = entry.byte_count // dtype.itemsize
        stored = np.frombuffer(self._data, dtype, count, entry.offset).reshape(entry.shape)
        values = stored[_file_rows(place, begin, end)] if place.interleaved_head else stored[begin:end]
        if entry.type_name == "BF16":
            values = (values.astype(np.uint32) << 16).view(np.float32)  # bfloat16 is the upper half of a float32
        step = max(1, CHUNK_WEIGHTS // max(1, values[0].size))
        for first in range(0, len(values), step):
            if not np.isfinite(values[first : first + step]).all():
                raise SourceError(f"{where}: holds a value that is not a finite number. Fetch the file again")
        return values

    def _check_place(self, name: str, place: Place) -> None:
        entry = self._entries.get(place.file_name)
        if entry is None:
            raise SourceError(f"{self._path}: tensor {place.file_name} ({name}) is missing. Convert the model again")
        if entry.shape != place.shape:
            fact = f"is {list(entry.shape)}, the keys of the file make it {list(place.shape)}"
            raise SourceError(f"{self._path}: tensor {place.file_name} ({name}) {fact}. Convert the model again")
        if entry.type_name not in FLOAT_TYPES and entry.type_name not in BLOCK_FORMATS:
            step = f"Use a file of these types: {', '.join((*FLOAT_TYPES, *BLOCK_FORMATS))}"
            raise SourceError(f"{self._path}: tensor {place.file_name} is {entry.type_name}, which is not read. {step}")
        if len(place.shape) == 1 and entry.type_name not in FLOAT_TYPES:
            raise SourceError(f"{self._path}: tensor {place.file_name} is a {entry.type_name} vector. Convert the model again")


def _file_rows(place: Place, begin: int, end: int) -> np.ndarray:
    """Rows of the file for rows [begin, end) of ours.

    Converters write the rows of a q or k head as (first half 0, second half 0, first half 1, ...), so that neighbours
    rotate together; ours are all of the first half, then all of the second.
    """
    rows = np.arange(begin, end)
    if not place.interleaved_head:
        return rows
    head, inside = np.divmod(rows, place.interleaved_head)
    half, index = np.divmod(inside, place.interleaved_head // 2)
    ordered: np.ndarray = head * place.interleaved_head + 2 * index + half
    return ordered


def open_gguf(path: Path) -> GgufSource:
    """Opens the GGUF file at `path`: header, spec, tokenizer and tensor shapes are read and checked, no values."""
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: cannot be mapped ({error}). Check the path and its permissions") from error
    header = read_header(path, data)
    keys = Keys(path, header.values)
    architecture = keys.text("general.architecture")
    if architecture not in READERS:
        raise keys.error("general.architecture", f"is {architecture!r}", f"Use a model of: {', '.join(READERS)}")
    if keys.count_or("split.count", 1) > 1:
        raise keys.error("split.count", "the file is one part of several", "Join them: llama-gguf-split --merge PART-1 OUT")
    if "rope_freqs.weight" in header.tensors:
        fact = "scaled rotary frequencies cannot be built yet"
        raise SourceError(f"{path}: tensor rope_freqs.weight: {fact}. Use a model without them")
    embedding = header.tensors.get(EMBEDDING)
    if embedding is None or len(embedding.shape) != 2:
        raise SourceError(f"{path}: tensor {EMBEDDING} (embed.weight) is missing or no matrix. Convert the model again")
    vocab_size = embedding.shape[0]
    name = " ".join(keys.text_or("general.name", path.stem).split())  # it is shown in one line
    tied = HEAD not in header.tensors or _equal(data, embedding, header.tensors[HEAD])
    spec = READERS[architecture](keys, read_dimensions(keys, name, vocab_size, tied))
    try:
        spec.check()
    except ValueError as error:
        raise SourceError(f"{path}: {error}, which no model has. Convert the model again") from None
    licence, link = keys.text_or("general.license", ""), keys.text_or("general.license.link", "")
    metadata = SourceMetadata(path, name, licence, link, read_tokenizer_parts(keys, vocab_size))
    return GgufSource(header, data, spec, metadata)


def _equal(data: mmap.mmap, left: TensorEntry, right: TensorEntry) -> bool:
    """Whether two tensors hold the same bytes. Untied ones differ early, so this reads much only where they are equal."""
    if (left.type_name, left.shape) != (right.type_name, right.shape):
        return False
    for begin in range(0, left.byte_count, COMPARED_BYTES):
        count = min(COMPARED_BYTES, left.byte_count - begin)
        ours, theirs = (np.frombuffer(data, np.uint8, count, entry.offset + begin) for entry in (left, right))
        if not np.array_equal(ours, theirs):
            return False
    return True
