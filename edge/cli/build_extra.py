"""What exporting and building need beside the base install. Owns: names of libraries, the line that says what is missing.
Needs: nothing. Never: imports them."""

from __future__ import annotations

import importlib.util

from edge.errors import ConfigError

BUILD_LIBRARIES = ("gguf", "onnx", "onnxruntime")  # distributions and modules have the same names
INSTALL = "./install.sh (Python 3.11 or newer)"


def missing_libraries() -> tuple[str, ...]:
    """Those of the build extra that this Python does not have."""
    return tuple(name for name in BUILD_LIBRARIES if importlib.util.find_spec(name) is None)


def need_build_extra(what: str) -> None:
    """ConfigError where `what`, a command, cannot do its work. To be called before anything of `engines` is imported."""
    if missing := missing_libraries():
        raise ConfigError(f"{what} needs {', '.join(missing)}: {INSTALL}")
