"""The file of a baked prefix, written. Owns: the partial file, its end. Needs: header, prefix. Never: an engine."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from edge.baked.folder import baked_path
from edge.baked.header import BORDER, BakedCut, BakedHeader, header_bytes, pack_ints
from edge.baked.prefix import rest_formats
from edge.contract import EMPTY, FORMAT_SHIFT, PAGE_FORMATS, PAGE_TOKENS, page_word, word_offset
from edge.errors import PackageError
from edge.pages.geometry import GroupPages

_MOST_DIGITS = 32  # characters by which numbers of a header may grow once they are known


class ExtentWriter:
    """Extents as they come, each once."""

    def __init__(self, file: BinaryIO, groups: tuple[GroupPages, ...]) -> None:
        self._file, self._groups = file, groups
        self._digest = hashlib.sha256()
        self._places: dict[tuple[int, int, int, int], int] = {}  # group, page, side, word in the pool: offset in the file
        self._bytes = 0

    def add(self, words: np.ndarray, tokens: int, pool: np.ndarray) -> np.ndarray:
        """Writes what a sequence at rest with `tokens` tokens holds and is not there yet; words int32 [groups, tokens /
        PAGE_TOKENS, 2] of that, which count from the first extent of the file. `words`, int32 [groups, max_pages, 2], lead into
        `pool`.

        The sequence must be the same each time: a page that has the word it had is the same extent.
        """
        cut = np.full((len(self._groups), tokens // PAGE_TOKENS, 2), EMPTY, np.int32)
        for index, group in enumerate(self._groups):
            for page, *kinds in rest_formats(group, tokens):
                for side, kind in enumerate(kinds):
                    if kind is None:
                        continue
                    word = int(words[index, page, side])
                    assert word >= 0, "a page that a later query sees is missing"
                    assert word >> FORMAT_SHIFT == PAGE_FORMATS[kind.page_format], "a page stands at another level"
                    key = (index, page, side, word)
                    if key not in self._places:
                        offset = word_offset(word)
                        self._places[key] = self._write(pool[offset : offset + kind.bytes].tobytes())
                    cut[index, page, side] = page_word(PAGE_FORMATS[kind.page_format], self._places[key])
        return cut

    def finish(self) -> tuple[int, str]:
        """Bytes of all extents, up to a border, and their SHA-256."""
        self._write(bytes(-self._bytes % BORDER))
        return self._bytes, self._digest.hexdigest()

    def _write(self, data: bytes) -> int:
        begin = self._bytes
        self._file.write(data)
        self._digest.update(data)
        self._bytes += len(data)
        return begin


class PrefixFile:
    """A prefix under way: extents first, its header when they are known."""

    def __init__(self, file: BinaryIO, draft: BakedHeader, groups: tuple[GroupPages, ...]) -> None:
        """`draft` has everything but words, `begin` and what is known of the extents only at the end."""
        self._file, self._draft = file, draft
        empty = [np.full((len(groups), cut.tokens // PAGE_TOKENS, 2), EMPTY, np.int32) for cut in draft.cuts]
        longest = replace(draft, cuts=_with_words(draft.cuts, empty))
        self._begin = -(-(len(header_bytes(longest)) + _MOST_DIGITS) // BORDER) * BORDER
        self._words: list[np.ndarray] = []
        file.seek(self._begin)
        self.extents = ExtentWriter(file, groups)

    def add(self, words: np.ndarray, pool: np.ndarray) -> None:
        """The next cut, as `ExtentWriter.add`."""
        self._words.append(self.extents.add(words, self._draft.cuts[len(self._words)].tokens, pool))

    def finish(self) -> BakedHeader:
        """Writes the header. All cuts have been added."""
        extent_bytes, digest = self.extents.finish()
        cuts = _with_words(self._draft.cuts, self._words)
        header = replace(self._draft, cuts=cuts, begin=self._begin, extent_bytes=extent_bytes, extents_sha256=digest)
        data = header_bytes(header)
        assert len(data) <= self._begin, "the header has grown into the extents"
        self._file.seek(0)
        self._file.write(data)
        return header


def _with_words(cuts: tuple[BakedCut, ...], words: list[np.ndarray]) -> tuple[BakedCut, ...]:
    return tuple(replace(cut, words=pack_ints(of_cut)) for cut, of_cut in zip(cuts, words, strict=True))


@contextmanager
def partial_file(package: Path, name: str, *, replaces: bool) -> Iterator[BinaryIO]:
    """A file that becomes the prefix `name` when the body ends, and is gone when it raises. PackageError where one of that name
    is there and is not to be replaced, somebody else is writing it, or nothing can be written."""
    path = baked_path(package, name)
    check_free(package, name, replaces)
    partial = path.with_name(f".{path.name}.partial")
    try:
        is_new = not path.parent.exists()
        try:
            path.parent.mkdir(exist_ok=True)
            with _locked(partial, path) as file:
                try:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                    check_free(package, name, replaces)
                    partial.rename(path)
                finally:
                    with suppress(FileNotFoundError):  # it has its name by now
                        partial.unlink()
        except BaseException:
            _remove_abandoned(partial)
            if is_new:
                with suppress(OSError):  # somebody else's prefix is in it
                    path.parent.rmdir()
            raise
    except OSError as error:
        fact = f"{error.filename or path}: cannot be written: {error.strerror or error}"
        raise PackageError(f"{fact}. Check permissions and free space, or copy the package to another place") from error


def _remove_abandoned(partial: Path) -> None:
    """Removes `partial` where nobody holds it: a Ctrl-C right behind its making comes before anything that would remove it."""
    with suppress(OSError), partial.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if partial.stat().st_ino == os.fstat(file.fileno()).st_ino:
            partial.unlink()


def check_free(package: Path, name: str, replaces: bool) -> None:
    """PackageError where a prefix of this name is there and is not to be replaced."""
    path = baked_path(package, name)
    if path.exists() and not replaces:
        raise PackageError(f"{path}: is there already. Replace it with --force, or choose another --name")


@contextmanager
def _locked(partial: Path, path: Path) -> Iterator[BinaryIO]:
    """The empty file `partial`, which nobody else holds. One that was left behind is taken over."""
    descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    with open(descriptor, "wb") as file:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between our open and our lock another one may have ended and given this very file its name.
            if not partial.exists() or partial.stat().st_ino != os.fstat(descriptor).st_ino:
                raise BlockingIOError
        except BlockingIOError:
            raise PackageError(f"{path}: another bake is writing it. Wait for it, or choose another --name") from None
        file.truncate(0)
        yield file
