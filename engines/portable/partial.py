"""An export under way. Owns: its two temporary files, until they get their final names. Needs: a folder. Never: their content.

NAME.onnx and NAME.onnx.data are written as .NAME.onnx.partial and .NAME.onnx.data.partial and renamed when both are whole.
What leaves early removes them; what is killed leaves them to the next export of that name, which takes them over.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from edge.errors import BuildError
from engines.locks import lock_file

GRAPH_BYTES = 16 << 20  # room asked for beside the data: the graph itself is a few MB


@dataclass(frozen=True, slots=True)
class PartialExport:
    """The temporary files. `data` has its full size and its blocks on the disk: mapping it cannot run into a full disk."""

    graph: Path
    data: Path


@contextmanager
def partial_export(out: Path, data_bytes: int) -> Iterator[PartialExport]:
    """Temporary files for `out` and its data, renamed when the body ends, removed when it raises. Raises BuildError."""
    partial = PartialExport(out.with_name(f".{out.name}.partial"), out.with_name(f".{out.name}.data.partial"))
    lock = _locked(partial.data, out)
    try:
        _reserve(lock, out, data_bytes)
        yield partial
        _publish(partial, lock, out)
    finally:
        # Renamed files are gone from here; what is left of a failed export is removed while the lock is held.
        for path in (partial.graph, partial.data):
            with suppress(OSError):
                path.unlink()
        os.close(lock)


def _locked(data: Path, out: Path) -> int:
    """A descriptor of the empty file `data` that no other export of the same name holds."""
    if not out.parent.is_dir():
        raise BuildError(f"{out.parent}: is not a folder. Create it, or choose another place with -o")
    if out.is_dir():
        raise BuildError(f"{out}: is a folder. Give the name of a file: -o {out / 'model.onnx'}")
    descriptor = lock_file(data, out, "export")
    os.ftruncate(descriptor, 0)
    return descriptor


def _reserve(descriptor: int, out: Path, data_bytes: int) -> None:
    needed, free = data_bytes + GRAPH_BYTES, shutil.disk_usage(out.parent).free
    if free < needed:
        raise BuildError(
            f"{out.parent}: the export needs {needed / 1e9:.2f} GB, the disk has {free / 1e9:.2f} GB free. "
            "Free some, or choose a folder on another disk with -o"
        )
    try:
        os.posix_fallocate(descriptor, 0, data_bytes)
    except OSError as error:
        raise _unwritable(out, error) from error


def _publish(partial: PartialExport, descriptor: int, out: Path) -> None:
    try:
        os.fsync(descriptor)
        # An old graph must never meet new data, so it goes first.
        out.unlink(missing_ok=True)
        partial.data.replace(out.with_name(f"{out.name}.data"))
        partial.graph.replace(out)
    except OSError as error:
        raise _unwritable(out, error) from error


def _unwritable(out: Path, error: OSError) -> BuildError:
    return BuildError(f"{out}: cannot be written ({error.strerror}). Check the folder's permissions and space, or change -o")
