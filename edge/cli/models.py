"""What a user may write where a MODEL is wanted. Owns: the choice between path and catalog name. Needs: catalog, pull.
Never: reading the model."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from pathlib import Path

import click

from edge.errors import ConfigError
from edge.manifest import FILE_NAME
from edge.model_name import model_stem
from edge.progress import Progress


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model file or folder on disk."""

    name: str  # as the user writes it to get the same again: a catalog name, or the path
    stem: str  # for names of what is made from it
    path: Path


def is_package(path: Path) -> bool:
    """Whether this is a package folder (in whatever state)."""
    # os.path, which says no to what cannot be a path: a long prompt stands here too.
    return os.path.isfile(path / FILE_NAME) or (path.suffix == ".edge" and os.path.isdir(path))


def is_package_name(text: str) -> bool:
    """Whether a user who writes this means a package, be it there or not."""
    return Path(text).suffix == ".edge" or is_package(Path(text))


def find_model(text: str, progress: Progress, *, offline: bool = False, hashed: bool = True) -> ModelFile:
    """The file or folder of a model given as a path or as a catalog name; the latter is pulled when missing, saying so.

    Without `hashed` a file of the cache that has the right size is taken as it is: enough for who reads no weights.
    """
    from edge.catalog import catalog_model, catalog_names, model_folder
    from edge.pull import pull_model

    path = Path(text).expanduser()
    if is_package(path):
        raise ConfigError(f"{text}: is a package, and here a model is asked for. Give its file, its folder or its catalog name")
    if path.exists():
        return ModelFile(name=text, stem=model_stem(path), path=path)
    names = catalog_names()
    if text in names:
        model = catalog_model(text)
        path = model_folder(text) / model.file
        if not hashed and path.is_file() and path.stat().st_size == model.size_bytes:
            return ModelFile(name=text, stem=text, path=path)
        if not path.is_file():
            click.echo(f"edge: {text} is not here yet, pulling it", err=True)
        return ModelFile(name=text, stem=text, path=pull_model(text, progress, offline=offline).path)
    near = difflib.get_close_matches(text, names, n=1)
    hint = f"Did you mean {near[0]}?" if near else f"In the catalog: {', '.join(names)}"
    raise ConfigError(f"{text}: no such file, and no model of the catalog. {hint}")
