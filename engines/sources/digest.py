"""What a package remembers of the model that it was built from. Owns: source_sha256. Needs: hashes. Never: reading a model."""

from __future__ import annotations

import hashlib

from edge.hashes import file_sha256
from edge.progress import Progress
from engines.sources.base import Source


def source_sha256(source: Source, progress: Progress) -> str:
    """Of a model that is one file its own, so that `sha256sum` gives it; of a folder that of its files' digests and names."""
    files = source.metadata.files
    digests = [file_sha256(file, progress) for file in files]
    if len(files) == 1:
        return digests[0]
    lines = sorted(f"{digest}  {file.name}\n" for digest, file in zip(digests, files, strict=True))  # as sha256sum prints
    return hashlib.sha256("".join(lines).encode("utf-8")).hexdigest()
