"""What an engine is built for. Owns: device profiles (yaml/devices). Needs: yamls. Never: measuring; a profile states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edge.yamls import load_named


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Bytes of a process beside weights, pool and workspace."""

    base_bytes: int  # interpreter, libraries, native core
    text_bytes: int  # tokenizer and chat template


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """One target. Its name, as in `--target`, is the name of its YAML file."""

    title: str
    executor: Literal["native"]
    host: HostMemory


def load_device(name: str) -> DeviceProfile:
    """ConfigError with the names that there are where `name` is none of them."""
    return load_named("devices", name, DeviceProfile)
