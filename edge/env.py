"""The environment, read and changed here and nowhere else. Owns: names of variables, folders. Needs: platformdirs. Never:
decisions.

Options of the command line whose help names a variable (EDGE_THREADS for --threads) are read by click.
"""

from __future__ import annotations

import os
from pathlib import Path

from edge.errors import ConfigError

_YES = ("1", "true", "yes", "on")
_NO = ("", "0", "false", "no", "off")


def cache_folder() -> Path:
    """Where pulled models are kept: $EDGE_CACHE, else the user's cache folder (XDG_CACHE_HOME is honoured)."""
    chosen = os.environ.get("EDGE_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    import platformdirs

    return platformdirs.user_cache_path("edge-zero")


def state_folder() -> Path:
    """Where the chat keeps its history: the user's state folder (XDG_STATE_HOME is honoured)."""
    import platformdirs

    return platformdirs.user_state_path("edge-zero")


def is_offline() -> bool:
    """Whether the network must not be used: EDGE_OFFLINE or HF_HUB_OFFLINE."""
    return _flag("EDGE_OFFLINE") or _flag("HF_HUB_OFFLINE")


def is_colour_off() -> bool:
    """NO_COLOR (https://no-color.org): set to anything but nothing."""
    return bool(os.environ.get("NO_COLOR"))


def _flag(name: str) -> bool:
    value = os.environ.get(name, "").strip().lower()
    if value not in _YES + _NO:
        raise ConfigError(f"{name}={value}: neither yes nor no. Set it to 1 or 0")
    return value in _YES


def without_telemetry() -> None:
    """For ONNX Runtime, to be called before it is imported: by then it has begun to send, and left a file in the folder for
    temporary ones; its own function comes too late for that."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"


def with_temporary_folder(folder: Path) -> dict[str, str]:
    """The environment for a child process that keeps its temporary files in `folder`."""
    return {**os.environ, "TMPDIR": str(folder)}
