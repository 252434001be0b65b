"""Where an ONNX file keeps its large tensors. Owns: Extent, the check of locations. Needs: parsed protobufs. Never: values.

A location is refused unless it is a file inside the folder of the model: an ONNX file from elsewhere must not make us read
/etc/passwd, and a model moved together with its data must still find it.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from edge.errors import SourceError

EXTERNAL = 1  # onnx.TensorProto.DataLocation


@dataclass(frozen=True, slots=True)
class Extent:
    """The bytes of one external tensor."""

    path: Path
    offset: int
    nbytes: int


def external_tensors(graph: Any) -> Iterator[Any]:
    """Every TensorProto of an onnx.GraphProto whose data lies outside, those in attributes and subgraphs too."""
    tensors = list(graph.initializer)
    for sparse in graph.sparse_initializer:
        tensors += [sparse.values, sparse.indices]
    for node in graph.node:
        for attribute in node.attribute:
            tensors += [attribute.t, *attribute.tensors]
            for subgraph in (attribute.g, *attribute.graphs):
                yield from external_tensors(subgraph)
    yield from (tensor for tensor in tensors if tensor.data_location == EXTERNAL)


def external_extent(model: Path, tensor: Any) -> Extent:
    """Where the data of `tensor` lies. Raises SourceError for a place outside the model's folder or behind the file's end."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    folder = model.parent.resolve()
    try:
        path = (folder / location).resolve() if _is_relative(location) else folder
    except (OSError, RuntimeError):  # RuntimeError: a cycle of links, before Python 3.13
        path = folder
    if not path.is_relative_to(folder) or path == folder:
        raise SourceError(
            f"{model}: tensor {tensor.name!r} wants its data from {location!r}, which is not inside the model's folder. "
            "Do not use this file, or save it again with its data beside it"
        )
    try:
        if not path.is_file():  # opening a pipe would wait for somebody who writes
            raise FileNotFoundError(errno.ENOENT, "no such file")
        size = path.stat().st_size
        offset = int(entries.get("offset", "0"))
        nbytes = int(entries.get("length", str(size - offset)))
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror}). {model.name} needs it beside it; copy both") from error
    except ValueError as error:
        raise SourceError(f"{model}: tensor {tensor.name!r} has a damaged place ({error}). Export it again") from error
    if offset < 0 or nbytes < 0 or offset + nbytes > size:
        raise SourceError(
            f"{path}: holds {size} bytes, tensor {tensor.name!r} needs bytes {offset} to {offset + nbytes}. "
            "The file is cut off or belongs to another model; export or copy it again"
        )
    return Extent(path, offset, nbytes)


def _is_relative(location: str | bytes) -> bool:
    """Whether a location may be one of a file beside the model. Text that is no UTF-8 protobuf gives as bytes."""
    if isinstance(location, bytes):
        return False
    # A backslash is a separator for some readers and a letter for others; no writer needs one.
    return bool(location) and not {"\\", "\0"} & set(location) and not PurePosixPath(location).is_absolute()
