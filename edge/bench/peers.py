"""Engines that ours is compared with. Owns: their names, how each is started and installed. Needs: peer_script.
Never: runs them."""

from __future__ import annotations

import difflib
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edge.errors import ConfigError

_SCRIPT = Path(__file__).with_name("peer_script.py")


@dataclass(frozen=True, slots=True)
class Peer:
    """A row of the comparison: an engine under one setting."""

    name: str
    engine: str  # peer_script.ENGINES, and a key of --python
    install: str  # the command that installs it into its Python
    reads: str  # "gguf", or "onnx" for our portable export
    flash: bool = False


PEERS = (
    Peer("llama.cpp", "llama.cpp", "pip install llama-cpp-python", "gguf"),
    Peer("llama.cpp flash", "llama.cpp", "pip install llama-cpp-python", "gguf", flash=True),
    Peer("openvino-genai", "openvino-genai", "pip install openvino-genai", "gguf"),
    Peer("onnxruntime", "onnxruntime", "pip install 'onnxruntime>=1.32'", "onnx"),
)
ENGINES = tuple(dict.fromkeys(peer.engine for peer in PEERS))


def choose_peers(engines: Sequence[str]) -> tuple[Peer, ...]:
    """Those of these engines; all where none is named. ConfigError for an unknown one."""
    for engine in engines:
        check_engine(engine, "--engine")
    return tuple(peer for peer in PEERS if not engines or peer.engine in engines)


def check_engine(engine: str, option: str) -> None:
    if engine not in ENGINES:
        near = difflib.get_close_matches(engine, ENGINES, n=1)
        hint = f"Did you mean {near[0]}? " if near else ""
        raise ConfigError(f"{option} {engine}: no engine to compare with. {hint}There are: {', '.join(ENGINES)}")


def read_pythons(words: Sequence[str]) -> dict[str, str]:
    """ENGINE=PATH of --python, by engine. ConfigError where a word is neither, or nothing can be run at PATH."""
    pythons = {}
    for word in words:
        engine, found, path = word.partition("=")
        if not found or not path:
            raise ConfigError(f"--python {word}: expected ENGINE=PATH, as in --python llama.cpp=venv/bin/python")
        check_engine(engine, "--python")
        if shutil.which(path) is None:
            mend = f"Give the Python in it: {path}/bin/python" if Path(path).is_dir() else "Give the Python of an environment"
            raise ConfigError(f"--python {word}: no program at {path} that can be run. {mend}")
        pythons[engine] = path
    return pythons


def peer_command(peer: Peer, pythons: Mapping[str, str]) -> list[str]:
    """The child process; without a Python of its own a peer runs in ours."""
    return [pythons.get(peer.engine, sys.executable), str(_SCRIPT)]


def install_command(peer: Peer, pythons: Mapping[str, str]) -> str:
    """How a user gets a missing engine."""
    python = pythons.get(peer.engine)
    return peer.install if python is None else f"{python} -m {peer.install}"
