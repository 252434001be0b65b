"""TensorRT and TensorRT-RTX as they are installed here. Owns: LibraryFound, NoLibrary, where versions are written. Needs: the
import system, dpkg's list. Never: an import of either, which loads gigabytes and on a machine without a driver can end it.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edge import dpkg
from edge.engine_record import is_same_version

LibraryKind = Literal["tensorrt", "tensorrt-rtx"]

DPKG_STATUS = Path("/") / dpkg.STATUS

TITLES: dict[LibraryKind, str] = {"tensorrt": "TensorRT", "tensorrt-rtx": "TensorRT-RTX"}
MODULES: dict[LibraryKind, str] = {"tensorrt": "tensorrt", "tensorrt-rtx": "tensorrt_rtx"}
# Wheels of the index say in their name for which CUDA they are; those of JetPack and of NVIDIA's archives do not.
_DISTRIBUTIONS: dict[LibraryKind, dict[str, int | None]] = {
    "tensorrt": {"tensorrt-cu13-bindings": 13, "tensorrt-cu12-bindings": 12, "tensorrt": None},
    "tensorrt-rtx": {"tensorrt-rtx-cu13-bindings": 13, "tensorrt-rtx-cu12-bindings": 12, "tensorrt-rtx": None},
}
INSTALL: dict[LibraryKind, str] = {
    "tensorrt": "On a Jetson: sudo apt-get install python3-libnvinfer, and a virtual environment with --system-site-packages "
    "(./install.sh makes one); beside a CUDA GPU: pip install tensorrt-cu13, with a driver older than 580 tensorrt-cu12",
    "tensorrt-rtx": "Install it (x86-64, Python 3.11 or newer): ./install.sh --with rtx, or pip install tensorrt-rtx-cu13",
}
# Debian packages of the bindings, which JetPack brings: 10.3.0.30-1+cuda12.5
_DEBIAN_PACKAGE = "python3-libnvinfer"
_DEBIAN_VERSION = re.compile(r"(?P<version>[0-9]+(\.[0-9]+){2,3})-[0-9]+\+cuda(?P<cuda>[0-9]+)\.[0-9]+")
_DUNDER_VERSION = re.compile(r"""^__version__\s*=\s*["']([0-9]+(?:\.[0-9]+){2,3})["']""", re.MULTILINE)
_NUMBERS = re.compile(r"[0-9]+(\.[0-9]+){2,3}")


@dataclass(frozen=True, slots=True)
class LibraryFound:
    """A library that this Python can import."""

    kind: LibraryKind
    version: str  # 10.16.2.10; three numbers where nothing names the build
    cuda_major: int | None  # of the CUDA that it is made for; None: it does not say

    @property
    def title(self) -> str:
        return f"{TITLES[self.kind]} {self.version}"


@dataclass(frozen=True, slots=True)
class NoLibrary:
    """Why a library cannot be imported, and what to do about it."""

    reason: str
    remedy: str


def find_library(kind: LibraryKind, dpkg_status: Path = DPKG_STATUS) -> LibraryFound | NoLibrary:
    """What an import of `kind` would load. Reads files only."""
    title, debian = TITLES[kind], _debian_package(dpkg_status) if kind == "tensorrt" else None
    module = _module_file(MODULES[kind])
    if module is None:
        if debian is None:
            return NoLibrary(f"{title} is not installed for {sys.executable}", INSTALL[kind])
        return NoLibrary(
            f"{title} {debian.version} belongs to the system's Python, and {sys.executable} does not see it",
            "Make its environment with --system-site-packages, as ./install.sh does",
        )
    found = _distribution(kind) or _module_version(kind, module)
    if found is None:
        return NoLibrary(f"{module}: nothing tells its version", f"Install {title} again. {INSTALL[kind]}")
    # The bindings of 10.3 name three numbers, Debian's list all four, and the CUDA.
    return debian if debian is not None and is_same_version(debian.version, found.version) else found


def _module_file(name: str) -> Path | None:
    """The file that an import would run. None also for a folder of stubs (tensorrt-stubs): `*.pyi` files are no module."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # ValueError: a module of that name was put together by hand
        return None
    return Path(spec.origin) if spec is not None and spec.origin is not None else None


def _distribution(kind: LibraryKind) -> LibraryFound | None:
    import importlib.metadata

    for name, cuda in _DISTRIBUTIONS[kind].items():
        with suppress(importlib.metadata.PackageNotFoundError):
            numbers = _NUMBERS.match(importlib.metadata.version(name))  # 8.6.1.post1 was one, too
            if numbers is not None:
                return LibraryFound(kind, numbers[0], cuda)
    return None


def _module_version(kind: LibraryKind, module: Path) -> LibraryFound | None:
    """For a module that was copied without its metadata."""
    try:
        match = _DUNDER_VERSION.search(module.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return None if match is None else LibraryFound(kind, match[1], None)


def _debian_package(status: Path) -> LibraryFound | None:
    """The bindings for the system's Python, where Debian's list has them as installed."""
    match = _DEBIAN_VERSION.fullmatch(dpkg.installed_version(status, _DEBIAN_PACKAGE) or "")
    return None if match is None else LibraryFound("tensorrt", match["version"], int(match["cuda"]))
