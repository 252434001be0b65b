"""A GGUF file as a Source. Owns: the mapped file, which of its tensors is which. Needs: gguf_header, gguf_blocks, an
architecture. Never: what a tier makes of a tensor."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np

from edge.errors import SourceError
from edge.spec import ModelSpec
from engines.sources.architectures import GGUF_READERS, gguf_places
from engines.sources.architectures.dimensions import GgufFile, read_gguf_dimensions
from engines.sources.architectures.places import Place
from engines.sources.architectures.rotary import LONG_FACTORS, ROPE_FREQS, SHORT_FACTORS
from engines.sources.base import SourceMetadata, SourceTensor
from engines.sources.floats import FLOAT_TYPES, read_floats
from engines.sources.gguf_blocks import BLOCK_FORMATS, decode_rows, dequantise_rows
from engines.sources.gguf_header import GgufHeader, TensorEntry, read_header
from engines.sources.gguf_vocabulary import read_tokenizer_parts
from engines.sources.keys import Keys
from engines.sources.placed import PlacedSource, refuse_unknown

HALF_ROUNDING = 2.0**-11  # largest relative error of a number rounded to fp16
LONGEST_ROPE = 1 << 12  # divisors: as many as half a head has channels
COMPARED_BYTES = 1 << 24  # of two matrices at a time
EMBEDDING, HEAD = "token_embd.weight", "output.weight"
ROPE_VECTORS = (ROPE_FREQS, SHORT_FACTORS, LONG_FACTORS)  # parts of the spec, not of the model's tensors


class GgufSource(PlacedSource):
    """Tensors of a GGUF file by canonical name."""

    def __init__(self, header: GgufHeader, data: mmap.mmap, spec: ModelSpec, metadata: SourceMetadata) -> None:
        self.spec = spec
        self.metadata = metadata
        self._path = header.path
        self._entries = header.tensors
        self._data = data
        super().__init__(gguf_places(spec))
        for name, place in self._places.items():
            self._check_place(name, place)
        # A tied file may hold the head once more.
        known = {place.file_name for place in self._places.values()} | {HEAD, *ROPE_VECTORS}
        refuse_unknown(self._entries.keys() - known, spec, header.path)

    def read_rows(self, name: str, begin: int, end: int) -> SourceTensor:
        """Rows (or items of a vector) [begin, end)."""
        place = self._places[name]
        entry = self._entries[place.file_name]
        assert 0 <= begin < end <= place.shape[0]
        where = f"{self._path}: tensor {entry.name}"
        if entry.type_name in FLOAT_TYPES:
            return SourceTensor(name, self._read_floats(place, entry, begin, end, where), entry.type_name, "", 0.0)
        rows = _indices(place, begin, end)
        values, rounding = decode_rows(entry.type_name, self._raw(entry), rows, where)
        note, error = rounding.note, rounding.relative_error
        if place.head_factors:
            note = "; ".join(part for part in (note, "scales rounded to fp16 again by long-rope's factor") if part)
            error += HALF_ROUNDING
        return SourceTensor(name, place.finish(values, begin), entry.type_name, note, error)

    def read_exact(self, name: str, begin: int, end: int) -> np.ndarray:
        """Rows [begin, end) as float32, without the rounding of scales that read_rows() reports."""
        place = self._places[name]
        entry = self._entries[place.file_name]
        if entry.type_name in FLOAT_TYPES:
            return self.read_rows(name, begin, end).to_float32()
        exact = place.finish(dequantise_rows(entry.type_name, self._raw(entry), _indices(place, begin, end)), begin)
        assert isinstance(exact, np.ndarray)
        return exact

    def _raw(self, entry: TensorEntry) -> np.ndarray:
        """uint8 [rows, row bytes], a view of the file."""
        return np.frombuffer(self._data, np.uint8, entry.byte_count, entry.offset).reshape(-1, entry.row_bytes)

    def _read_floats(self, place: Place, entry: TensorEntry, begin: int, end: int, where: str) -> np.ndarray:
        dtype = FLOAT_TYPES[entry.type_name]
        count = entry.byte_count // dtype.itemsize
        stored = np.frombuffer(self._data, dtype, count, entry.offset).reshape(entry.shape)
        values = read_floats(entry.type_name, stored, place.file_rows(begin, end), where)
        finished = place.finish(values, begin)
        assert isinstance(finished, np.ndarray)
        return finished

    def _check_place(self, name: str, place: Place) -> None:
        entry = self._entries.get(place.file_name)
        if entry is None:
            raise SourceError(f"{self._path}: tensor {place.file_name} ({name}) is missing. Convert the model again")
        if entry.shape != place.file_shape:
            fact = f"is {list(entry.shape)}, the keys of the file make it {list(place.file_shape)}"
            raise SourceError(f"{self._path}: tensor {place.file_name} ({name}) {fact}. Convert the model again")
        if entry.type_name not in FLOAT_TYPES and entry.type_name not in BLOCK_FORMATS:
            step = f"Use a file of these types: {', '.join((*FLOAT_TYPES, *BLOCK_FORMATS))}"
            raise SourceError(f"{self._path}: tensor {place.file_name} is {entry.type_name}, which is not read. {step}")
        if len(place.shape) == 1 and entry.type_name not in FLOAT_TYPES:
            raise SourceError(f"{self._path}: tensor {place.file_name} is a {entry.type_name} vector. Convert the model again")


def _indices(place: Place, begin: int, end: int) -> np.ndarray:
    rows = place.file_rows(begin, end)
    return np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows


def open_gguf(path: Path, context: int | None = None) -> GgufSource:
    """Opens the GGUF file at `path`: header, spec, tokenizer and tensor shapes are read and checked, no matrices. `context` is
    as open_source has it."""
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: cannot be mapped ({error}). Check the path and its permissions") from error
    header = read_header(path, data)
    keys = Keys(path, header.values)
    architecture = keys.text("general.architecture")
    if architecture not in GGUF_READERS:
        raise keys.error("general.architecture", f"is {architecture!r}", f"Use a model of: {', '.join(GGUF_READERS)}")
    if keys.count_or("split.count", 1) > 1:
        raise keys.error("split.count", "the file is one part of several", "Join them: llama-gguf-split --merge PART-1 OUT")
    embedding = header.tensors.get(EMBEDDING)
    if embedding is None or len(embedding.shape) != 2:
        raise SourceError(f"{path}: tensor {EMBEDDING} (embed.weight) is missing or no matrix. Convert the model again")
    vocab_size = embedding.shape[0]
    name = " ".join(keys.text_or("general.name", path.stem).split())  # it is shown in one line
    tied = HEAD not in header.tensors or _equal(data, embedding, header.tensors[HEAD])
    vectors = {each: _rope_vector(header, data, each) for each in ROPE_VECTORS if each in header.tensors}
    dims = read_gguf_dimensions(keys, name, vocab_size, tied)
    spec = GGUF_READERS[architecture](GgufFile(keys, dims, vectors, context))
    try:
        spec.check()
    except ValueError as error:
        raise SourceError(f"{path}: {error}, which no model has. Convert the model again") from None
    licence, link = keys.text_or("general.license", ""), keys.text_or("general.license.link", "")
    metadata = SourceMetadata(path, name, licence, link, read_tokenizer_parts(keys, vocab_size), (path,))
    return GgufSource(header, data, spec, metadata)


def _rope_vector(header: GgufHeader, data: mmap.mmap, name: str) -> tuple[float, ...]:
    """Divisors of rotary frequencies: float32, a few dozen."""
    entry = header.tensors[name]
    if entry.type_name != "F32" or len(entry.shape) != 1 or entry.shape[0] > LONGEST_ROPE:
        fact = f"is {entry.type_name} {list(entry.shape)}, not a short vector of F32"
        raise SourceError(f"{header.path}: tensor {name} {fact}. Convert the model again")
    values = np.frombuffer(data, "<f4", entry.shape[0], entry.offset)
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise SourceError(f"{header.path}: tensor {name} holds a factor that is not over 0. Fetch the file again")
    return tuple(float(value) for value in values)


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
