"""A package under way. Owns: its temporary folder, until it gets its final name. Needs: a folder. Never: its content.

NAME.edge is built as .NAME.edge.partial beside it and renamed when it is whole. What leaves early removes it; what is killed
leaves it to the next build of that name, which takes it over.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edge.errors import BuildError
from edge.manifest import FILE_NAME


@contextmanager
def partial_package(out: Path) -> Iterator[Path]:
    """An empty folder that becomes `out` when the body ends, and is removed when it raises. Raises BuildError.

    A package that stands at `out` is replaced in one step; anything else there is left alone and refused.
    """
    _check_place(out)
    partial = out.with_name(f".{out.name}.partial")
    lock = _locked(out)
    try:
        if _old(out).exists() and not out.exists():
            _old(out).rename(out)  # a build was killed between its two renames
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir()
        yield partial
        _publish(partial, out)
    except OSError as error:
        raise BuildError(
            f"{error.filename or out}: {error.strerror or error}. Check permissions and free space, or choose another -o"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        with suppress(OSError):
            _lock_path(out).unlink()
        os.close(lock)


def _check_place(out: Path) -> None:
    if not out.parent.is_dir():
        raise BuildError(f"{out.parent}: is not a folder. Create it, or choose another place with -o")
    if out.suffix != ".edge":
        raise BuildError(f"{out}: a package's name ends in .edge. Try -o {out.name}.edge")
    if out.exists() and not (out / FILE_NAME).is_file():
        raise BuildError(f"{out}: stands there and is not a package. Move it away, or choose another name with -o")


def _lock_path(out: Path) -> Path:
    return out.with_name(f".{out.name}.lock")


def _old(out: Path) -> Path:
    return out.with_name(f".{out.name}.old")


def _locked(out: Path) -> int:
    """A descriptor of a lock file that no other build of this name holds."""
    path = _lock_path(out)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise BuildError(f"{out.parent}: cannot be written ({error.strerror}). Choose another folder with -o") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Between our open and our lock the other build may have ended and removed this very file.
        if not path.exists() or path.stat().st_ino != os.fstat(descriptor).st_ino:
            raise BlockingIOError
    except BlockingIOError:
        os.close(descriptor)
        raise BuildError(f"{out}: another build is writing it. Wait for it, or choose another name with -o") from None
    return descriptor


def _publish(partial: Path, out: Path) -> None:
    for path in partial.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    old = _old(out)
    if old.exists():
        shutil.rmtree(old)
    if out.exists():
        out.rename(old)  # a folder cannot replace a folder that is not empty
    partial.rename(out)
    shutil.rmtree(old, ignore_errors=True)
