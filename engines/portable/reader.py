"""A portable ONNX read back. Owns: PortableModel. Needs: onnx. Never: whole files in memory, other people's exports.

The graph is parsed without its weights; these are mapped from the data file when asked for. `weight` undoes what export.py did:
it gives W [N, K] as a QuantTensor or an array, any run of rows of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibration.schemes import QuantTensor
from edge.errors import BuildError, SourceError
from edge.spec import ModelSpec
from engines.portable.data import unpack_int4
from engines.portable.external import Extent, external_extent, external_tensors
from engines.portable.metadata import ExportReport, read_properties
from engines.portable.storage import ONNX_TYPES, Piece, StoredTensor

_TYPE_NAMES = {number: name for name, number in ONNX_TYPES.items()}
_LARGEST_GRAPH = 256 << 20  # bytes that are read and parsed at once


@dataclass(frozen=True, slots=True)
class Initializer:
    """A weight's initializer and where its bytes lie."""

    piece: Piece
    extent: Extent


@dataclass(frozen=True, slots=True)
class PortableModel:
    """An opened export."""

    path: Path
    graph: Any  # onnx.GraphProto; external weights are not in it
    spec: ModelSpec
    report: ExportReport
    initializers: Mapping[str, Initializer]  # the external ones, by name
    stored: Mapping[str, StoredTensor]  # by canonical tensor name

    def constant(self, name: str) -> np.ndarray:
        """A small constant that lies in the graph itself."""
        for tensor in self.graph.initializer:
            if tensor.name == name and name not in self.initializers:
                return read_constant(self.path, tensor)
        raise SourceError(f"{self.path}: has no constant {name!r}. Export it again")

    def array(self, name: str) -> np.ndarray:
        """An external initializer, mapped: its shape and type; int4 as packed uint8 bytes."""
        found = self.initializers[name]
        piece, extent = found.piece, found.extent
        if piece.dtype == "int4":
            return np.memmap(extent.path, np.uint8, mode="r", offset=extent.offset, shape=(piece.nbytes,))
        return np.memmap(extent.path, np.dtype(piece.dtype), mode="r", offset=extent.offset, shape=piece.shape)

    def weight(self, name: str, begin: int = 0, end: int | None = None) -> np.ndarray | QuantTensor:
        """Rows [begin, end) of the tensor with this canonical name: W [N, K] (K padded where quantised), or a vector [N]."""
        stored = self.stored[name]
        rows = slice(begin, stored.shape[0] if end is None else end)
        if not stored.group:
            return np.ascontiguousarray(self.array(name)[..., rows].T)
        minima = np.ascontiguousarray(self.array(stored.minima.name)[:, rows].T) if stored.has_minima else None
        scales = np.ascontiguousarray(self.array(stored.scales.name)[:, rows].T)
        bits = 4 if stored.kind == "int4" else 8
        return QuantTensor(bits, stored.group, self._quants(stored, rows), scales, minima)

    def _quants(self, stored: StoredTensor, rows: slice) -> np.ndarray:
        """uint8 [rows, Kp], as they were before `zero` was taken off."""
        packed = self.array(stored.quants.name)
        if stored.kind == "int8":
            return np.ascontiguousarray(packed[:, rows].T).view(np.uint8) + np.uint8(stored.zero)
        inputs, outputs = stored.quants.shape
        if outputs % 2:
            nibbles = unpack_int4(packed, inputs * outputs).reshape(inputs, outputs)[:, rows]
        else:
            first = rows.start // 2
            columns = np.ascontiguousarray(packed.reshape(inputs, outputs // 2)[:, first : -(-rows.stop // 2)])
            nibbles = unpack_int4(columns.reshape(-1), columns.size * 2).reshape(inputs, -1)
            nibbles = nibbles[:, rows.start - 2 * first : rows.stop - 2 * first]
        return np.ascontiguousarray(nibbles.T) + np.uint8(stored.zero) & 15


def read_model(path: Path) -> Any:
    """The onnx.ModelProto at `path`, without what lies outside it. Raises SourceError, and BuildError where onnx is missing."""
    try:
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
        from onnx import ModelProto
    except ImportError as error:
        raise BuildError(f"reading {path} needs the onnx package ({error}). Install it: ./install.sh") from error
    model = ModelProto()
    try:
        if (size := path.stat().st_size) > _LARGEST_GRAPH:
            raise SourceError(f"{path}: has {size:,} bytes; a graph without its weights has a few million. Export it again")
        model.ParseFromString(path.read_bytes())
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror}). Check the path and its permissions") from error
    except DecodeError as error:
        raise SourceError(
            f"{path}: is not an ONNX file ({error}). Export it again: edge export MODEL -o {path.name}"
        ) from error
    return model


def read_portable(path: Path) -> PortableModel:
    """Opens the export at `path`. Raises SourceError for what is missing, damaged, or not written by write_portable."""
    model = read_model(path)
    initializers = {tensor.name: _initializer(path, tensor) for tensor in external_tensors(model.graph)}
    spec, tier, entries = read_properties(path, {entry.key: entry.value for entry in model.metadata_props})
    stored = {entry.stored.name: entry.stored for entry in entries}
    for piece in (piece for tensor in stored.values() for piece in tensor.pieces):
        if piece.name not in initializers or initializers[piece.name].piece != piece:
            raise SourceError(f"{path}: initializer {piece.name!r} does not match the file's own report. Export it again")
    report = ExportReport(path, tier, tuple(entry.report for entry in entries))
    return PortableModel(path, model.graph, spec, report, initializers, stored)


def read_constant(path: Path, tensor: Any) -> np.ndarray:
    """The values of an onnx.TensorProto in the graph of the file at `path`. Raises SourceError where it does not hold them."""
    from onnx import numpy_helper

    try:
        return numpy_helper.to_array(tensor)
    except (TypeError, ValueError, KeyError) as error:
        raise SourceError(f"{path}: constant {tensor.name!r} is damaged ({error}). Export it again") from error


def _initializer(path: Path, tensor: Any) -> Initializer:
    dtype = _TYPE_NAMES.get(tensor.data_type)
    if dtype is None:
        raise SourceError(
            f"{path}: initializer {tensor.name!r} has ONNX type {tensor.data_type}; no export has. Export it again"
        )
    piece, extent = Piece(tensor.name, dtype, tuple(tensor.dims)), external_extent(path, tensor)
    if piece.nbytes != extent.nbytes:
        raise SourceError(
            f"{path}: initializer {tensor.name!r} needs {piece.nbytes} bytes and is given {extent.nbytes}. Export it again"
        )
    return Initializer(piece, extent)
