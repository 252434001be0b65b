"""A package under way. Owns: its temporary folder, until it gets its final name. Needs: a folder. Never: its content.

NAME.edge is built as .NAME.edge.partial beside it and renamed when it is whole. What leaves early removes it; what is killed
leaves it to the next build of that name, which takes it over.
"""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edge.errors import BuildError
from edge.manifest import FILE_NAME
from engines.locks import hold_lock


@contextmanager
def partial_package(out: Path) -> Iterator[Path]:
    """An empty folder that becomes `out` when the body ends, and is removed when it raises. Raises BuildError.

    A package that stands at `out` is replaced in one step; anything else there is left alone and refused.
    """
    _check_place(out)
    partial = out.with_name(f".{out.name}.partial")
    with hold_lock(_lock_path(out), out, "build"):
        try:
            if _old(out).exists() and not out.exists():
                _old(out).rename(out)  # a build was killed between its two renames
            _remove(partial)
            partial.mkdir()
            yield partial
            _publish(partial, out)
        except OSError as error:
            raise BuildError(
                f"{error.filename or out}: {error.strerror or error}. Check permissions and free space, or choose another -o"
            ) from error
        finally:
            _remove(partial)


def _check_place(out: Path) -> None:
    if not out.parent.is_dir():
        raise BuildError(f"{out.parent}: is not a folder. Create it, or choose another place with -o")
    if out.suffix != ".edge":
        raise BuildError(f"{out}: a package's name ends in .edge. Try -o {out.name}.edge")
    if out.exists() and not (out / FILE_NAME).is_file():
        raise BuildError(f"{out}: stands there and is not a package. Move it away, or choose another name with -o")


def _remove(folder: Path) -> None:
    """Removes a folder of ours, also one whose folders somebody made read-only; nothing where there is none."""
    for path in (folder, *folder.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            with suppress(OSError):
                path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _lock_path(out: Path) -> Path:
    return out.with_name(f".{out.name}.lock")


def _old(out: Path) -> Path:
    return out.with_name(f".{out.name}.old")


def _publish(partial: Path, out: Path) -> None:
    for path in partial.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                # What was written lies in the cache in small pieces; the first load reads it again, in large ones (file_map.h).
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if not out.exists():
        partial.rename(out)
    elif not exchange(partial, out):
        # In two steps: a build that is killed between them leaves the old package to the next one (see above).
        out.rename(_old(out))
        partial.rename(out)
        _remove(_old(out))
    folder = os.open(out.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def exchange(first: Path, second: Path) -> bool:
    """Swaps two names in one step (renameat2, Linux 3.15). False where the kernel or the file system cannot."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):  # glibc before 2.28, musl
        return False
    here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(library.renameat2(here, os.fsencode(first), here, os.fsencode(second), swap) == 0)
