"""Memory of KV pages: the pool, and files mapped behind it. Owns: PoolMemory, the words of a refusal. Needs: the native
extension. Never: what is in a page."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edge.errors import BudgetError, PackageError, one_line
from edge.executors.native_core import load_core
from edge.units import human_bytes


class FileIdentity(NamedTuple):
    """By what a file is known again: one that is replaced has another inode, one that is written to another time."""

    device: int
    inode: int
    bytes: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class PoolFile:
    """A file whose pages are read where they lie."""

    path: Path
    identity: FileIdentity  # of what was looked at; another file at that path is not mapped
    way_out: str  # what to do, beside copying it, where it is lost


@dataclass(frozen=True, slots=True)
class PoolMemory:
    """One range of addresses, so that a page-table word reaches both. What a file holds cannot be written to."""

    pages: np.ndarray  # uint8; the pool in front
    file_offsets: tuple[int, ...]  # bytes from its start to each file

    @classmethod
    def open(cls, pool_bytes: int, files: Sequence[PoolFile] = ()) -> PoolMemory:
        """`pool_bytes` of zeroed, touched memory, and the files read-only behind it. BudgetError where memory cannot be had,
        PackageError where a file is another by now."""
        with ExitStack() as opened:
            parts = []
            for wanted in files:
                try:
                    descriptor = opened.enter_context(wanted.path.open("rb")).fileno()
                except OSError as error:
                    raise PackageError(f"{wanted.path}: cannot be opened ({error.strerror}). Check the file") from None
                if file_identity(descriptor) != wanted.identity:
                    raise PackageError(f"{wanted.path}: was replaced while it was being opened. Start again")
                parts.append((descriptor, wanted.identity.bytes, loss_line(wanted.path, wanted.way_out)))
            try:
                pages, offsets = load_core().map_pool(pool_bytes, parts)
            except OSError as error:
                if isinstance(error.filename, int) and error.errno != errno.ENOMEM:
                    path = files[error.filename].path
                    raise PackageError(f"{path}: cannot be mapped ({error.strerror}). Check the file") from None
                raise _no_memory(pool_bytes, error.strerror) from None
            except ValueError as error:
                raise _no_memory(pool_bytes, str(error)) from None
        return cls(pages, tuple(offsets))


def file_identity(file: Path | int) -> FileIdentity:
    """Of a path or a descriptor. Raises OSError."""
    found = os.stat(file)
    return FileIdentity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def loss_line(path: Path, way_out: str) -> str:
    """What the process ends with when a mapped file loses bytes that are read: there is no error that could be caught."""
    return "edge: " + one_line(f"{path}: was cut short, or its disk failed, while it was in use. Copy it again, or {way_out}")


def _no_memory(pool_bytes: int, reason: str | None) -> BudgetError:
    return BudgetError(f"pool: {human_bytes(pool_bytes)} for KV pages cannot be had ({reason}). Use a smaller context")
