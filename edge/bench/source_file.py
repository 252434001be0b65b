"""The model that a package was built from. Owns: finding it again. Needs: manifest, catalog. Never: the network."""

from __future__ import annotations

from pathlib import Path

from edge.catalog import catalog_model, catalog_names, model_folder
from edge.errors import ConfigError
from edge.hashes import file_sha256
from edge.manifest import SourceRecord
from edge.progress import Progress


def find_source(record: SourceRecord, progress: Progress) -> Path:
    """Where the model is now: as `edge build` was given it, or in the cache folder. ConfigError where it is gone, or a file
    with other bytes; a folder is taken by its name."""
    path, mend = Path(record.name), "Give the model with --gguf FILE"
    if record.name in catalog_names():
        path = model_folder(record.name) / catalog_model(record.name).file
        mend = f"Fetch it: edge pull {record.name}"
    if path.is_dir():
        return path
    if not path.is_file():
        raise ConfigError(f"{path}: the model that the package was built from is not here. {mend}")
    if file_sha256(path, progress) != record.sha256:
        raise ConfigError(f"{path}: is not the file that the package was built from (its SHA-256 is another). {mend}")
    return path
