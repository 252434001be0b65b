"""A model's name from where it lies. Owns: model_stem. Needs: nothing. Never: reading the model."""

from __future__ import annotations

from pathlib import Path

_CACHED = "models--"  # the cache of huggingface-hub: models--ORG--NAME/snapshots/HASH


def model_stem(path: Path) -> str:
    """What is made from the model at `path` is called by this: a file's name without .gguf, a folder's, a cached model's."""
    path = path.resolve() if path.is_dir() else path
    cached = path.parent.parent.name
    if path.parent.name == "snapshots" and cached.startswith(_CACHED):
        return cached.rsplit("--", 1)[-1]
    return path.name.removesuffix(".gguf") or "model"
