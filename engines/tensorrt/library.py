"""TensorRT or TensorRT-RTX: which one builds. Owns: the module `trt` of a process, whether it loads. Needs: a process
that uses one of the two. Never: an object of theirs.

The two have nearly one API. What uses it says, inside a function, `from engines.tensorrt.library import trt`: type checkers see
TensorRT's module, and a process gets the one that it chose with load_library.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from edge.engine_library import INSTALL, MODULES, TITLES, LibraryKind
from edge.errors import BuildError
from edge.exit_codes import ending

if TYPE_CHECKING:
    import tensorrt as trt

__all__ = ["LibraryMissing", "load_library", "need_library", "trt", "worker_command"]

_SECONDS = 120.0  # that importing may take: several hundred MB from a memory card

# Not `-m`: that puts the current folder in front of all others, and what lies there would run in place of our modules.
_WORKER = "import sys; sys.path = [place for place in sys.path if place]; from engines.tensorrt.worker import main; main()"

_module: ModuleType | None = None


class LibraryMissing(BuildError):
    """The library is not installed, or does not load."""


def __getattr__(name: str) -> Any:
    if name == "trt" and _module is not None:
        return _module
    raise AttributeError(f"{name}: no such name, or load_library was not called")


def worker_command(*words: str) -> list[str]:
    """The command of a worker process."""
    return [sys.executable, "-c", _WORKER, *words]


@cache  # a build asks before it downloads anything and once more before it begins; loading takes seconds
def need_library(library: LibraryKind) -> str:
    """The version of the library, as it loads in a process of its own. LibraryMissing says how to install it."""
    try:
        done = subprocess.run(
            worker_command("version", library),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise LibraryMissing(
            f"{TITLES[library]} did not load within {_SECONDS:.0f} s. Try: python -c 'import {MODULES[library]}'"
        ) from error
    lines = done.stdout.decode(errors="replace").splitlines()
    if done.returncode == 0 and lines:
        return lines[-1]
    if done.returncode == 1 and lines:
        raise LibraryMissing(lines[-1])
    raise LibraryMissing(f"{TITLES[library]} ends the process that loads it ({ending(done.returncode)}). {_try_it(library)}")


def load_library(library: LibraryKind) -> str:
    """Imports the library into this process, for `trt`, and returns its version. LibraryMissing where it cannot be."""
    global _module
    assert _module is None or _module.__name__ == MODULES[library], "a process has one of the two"
    try:
        module = importlib.import_module(MODULES[library])
    except ModuleNotFoundError as error:
        if error.name != MODULES[library]:
            raise LibraryMissing(_does_not_load(library, error)) from error
        raise LibraryMissing(_not_installed(library)) from error
    except (ImportError, OSError, RuntimeError) as error:  # a shared library of it is missing, or of another version
        raise LibraryMissing(_does_not_load(library, error)) from error
    version = getattr(module, "__version__", None)
    if version is None:  # a folder of that name without code, as type stubs leave it
        raise LibraryMissing(_not_installed(library))
    _module = module
    return str(version)


def _not_installed(library: LibraryKind) -> str:
    return f"{TITLES[library]} is not installed for {sys.executable}. {INSTALL[library]}"


def _does_not_load(library: LibraryKind, error: Exception) -> str:
    reason = " ".join(str(error).split())
    return f"{TITLES[library]} is installed for {sys.executable} and does not load ({reason}). {INSTALL[library]}"


def _try_it(library: LibraryKind) -> str:
    return f"See what it says by itself: {sys.executable} -c 'import {MODULES[library]}'"
