"""A lock file that one build or export of a name holds. Owns: the lock, its end. Needs: a folder. Never: what is written."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edge.errors import BuildError


def lock_file(path: Path, out: Path, what: str) -> int:
    """A descriptor of the file `path`, created where missing, that no other `what` (build, export) of `out` holds.

    BuildError where somebody does, or the file cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise BuildError(
            f"{out}: cannot be written ({error.strerror}). Check the folder's permissions, or change -o"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Between our open and our lock another one may have ended and renamed or removed this very file.
        if not path.exists() or path.stat().st_ino != os.fstat(descriptor).st_ino:
            raise BlockingIOError
    except BlockingIOError:
        os.close(descriptor)
        raise BuildError(f"{out}: another {what} is writing it. Wait for it, or choose another name with -o") from None
    except OSError as error:
        os.close(descriptor)
        raise BuildError(f"{out}: cannot be locked ({error.strerror}). Choose a folder on another disk with -o") from error
    return descriptor


@contextmanager
def hold_lock(path: Path, out: Path, what: str) -> Iterator[None]:
    """As lock_file, for the body. The file goes before the lock does, or two could hold locks of one name."""
    lock = lock_file(path, out, what)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(lock)
