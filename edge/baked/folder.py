"""The baked prefixes of a package: its folder `baked`. Owns: their names. Needs: prefix. Never: what is in them."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from edge.baked.header import OtherFormatError
from edge.baked.prefix import BakedPrefix
from edge.errors import PackageError, RequestError
from edge.progress import SilentProgress

if TYPE_CHECKING:
    from edge.package import Package
    from edge.progress import Progress

FOLDER = "baked"
_ENDING = ".pages"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_name(name: str) -> None:
    """RequestError where a prefix cannot be called that: its name is that of a file."""
    if not _NAME.fullmatch(name):
        raise RequestError(
            f"{name!r} is no name for a prefix: letters, digits, '.', '-' and '_', 100 at most, a letter or digit in front. "
            "Like manual-2.1"
        )


def baked_path(package: Path, name: str) -> Path:
    return package / FOLDER / f"{name}{_ENDING}"


def baked_names(package: Path) -> tuple[str, ...]:
    """Sorted. PackageError where the folder cannot be read."""
    folder = package / FOLDER
    try:
        files = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    except OSError as error:
        raise PackageError(f"{folder}: cannot be read: {error.strerror}. Check its permissions") from error
    names = [name.removesuffix(_ENDING) for name in files if name.endswith(_ENDING)]
    return tuple(sorted(name for name in names if _NAME.fullmatch(name)))


def find_baked(package: Path, name: str) -> Path:
    """The file of a prefix. PackageError, with what is there, where it is not."""
    names = baked_names(package)
    if name in names:  # compared with the listing, so a name cannot lead out of the folder
        return baked_path(package, name)
    if not names:
        raise PackageError(
            f"{package}: no prefix {name!r}, none is baked. Bake it: edge bake {package} --name NAME --file FILE"
        )
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    raise PackageError(f"{package}: no prefix {name!r} is baked. {hint}There are: {', '.join(names)}")


def open_baked(package: Path, name: str) -> BakedPrefix:
    """PackageError where it is not there, or damaged."""
    return BakedPrefix.open(find_baked(package, name))


def is_damaged(package: Path, name: str) -> bool:
    """Whether a prefix of this name is there, can be read, and is no good to any version. Reads it wholly."""
    path = baked_path(package, name)
    if not os.access(path, os.R_OK):
        return False
    try:
        BakedPrefix.open(path).verify(SilentProgress())
    except OtherFormatError:
        return False
    except PackageError:
        return True
    return False


def verify_baked(package: Package, progress: Progress) -> tuple[str, ...]:
    """Reads every prefix wholly; their names. PackageError names each that is damaged or of another engine."""
    names, prefixes, bad = baked_names(package.path), list[BakedPrefix](), list[PackageError]()
    for name in names:
        try:
            prefixes.append(open_baked(package.path, name))
        except PackageError as error:
            bad.append(error)
    progress.start("checking baked prefixes", sum(prefix.header.extent_bytes for prefix in prefixes), "bytes")
    for prefix in prefixes:
        try:
            prefix.check_engine(package.manifest, None)
            prefix.cuts(package.spec)
            prefix.verify(progress)
        except PackageError as error:
            bad.append(error)
    if len(bad) > 1:
        raise PackageError(f"{len(bad)} of {len(names)} baked prefixes are bad. {'. '.join(map(str, bad))}")
    if bad:
        raise bad[0]
    progress.done()
    return names


def remove_baked(package: Path, name: str) -> Path:
    """Removes a prefix, damaged ones too. PackageError where it is not there or cannot be removed."""
    path = find_baked(package, name)
    try:
        path.unlink()
    except OSError as error:
        raise PackageError(f"{path}: cannot be removed: {error.strerror}. Check the folder's permissions") from error
    return path
