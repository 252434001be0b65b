"""SHA-256 of files. Owns: reading in chunks, what a digest looks like. Needs: nothing. Never: what a hash should be."""

from __future__ import annotations

import hashlib
from pathlib import Path

from edge.progress import Progress

_CHUNK = 4 << 20  # bytes read at once
_HEX = frozenset("0123456789abcdef")


def file_sha256(path: Path, progress: Progress) -> str:
    """Hexadecimal digest of the file, as one task of `progress`. Raises OSError."""
    progress.start(f"hashing {path.name}", path.stat().st_size, "bytes")
    digest = hash_file(path, progress)
    progress.done()
    return digest


def hash_file(path: Path, progress: Progress) -> str:
    """Hexadecimal digest of the file; its bytes advance the task under way. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            progress.advance(len(chunk))
    return digest.hexdigest()


def check_sha256(digest: str) -> None:
    """ValueError where this is not the hexadecimal digest of anything."""
    if len(digest) != 64 or not set(digest) <= _HEX:
        raise ValueError(f"sha256: {digest[:80]!r} is not 64 hexadecimal digits")
