"""What an engine is built for. Owns: device profiles (yaml/devices). Needs: yamls. Never: measuring; a profile states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edge.yamls import load_named

EngineKind = Literal["cpu", "tensorrt", "tensorrt-rtx"]


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Bytes of a process beside weights, pool and workspace."""

    base_bytes: int  # interpreter, libraries, native core
    text_bytes: int  # tokenizer and chat template


@dataclass(frozen=True, slots=True)
class BuildLimits:
    """What a TensorRT builder may take on the device."""

    workspace_bytes: int  # MemoryPoolType.WORKSPACE
    tactic_dram_bytes: int  # MemoryPoolType.TACTIC_DRAM


@dataclass(frozen=True, slots=True)
class Defaults:
    """What `edge build` and `edge plan` take for this device unless asked otherwise."""

    context: int  # M of linear KV caches, tokens
    prefill_tokens: int  # of one step


@dataclass(frozen=True, slots=True)
class Gpu:
    """The GPU of a device."""

    sm: str  # compute capability: 8.7
    memory_bytes: int  # of the GPU; where memory is unified, of the whole board
    unified: bool  # CPU and GPU share it
    build: BuildLimits


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """One target. Its name, as in `--target`, is the name of its YAML file."""

    title: str
    engines: tuple[EngineKind, ...]  # that can be built for it; the first unless another is asked for
    host: HostMemory
    gpu: Gpu | None = None
    defaults: Defaults | None = None


def load_device(name: str) -> DeviceProfile:
    """ConfigError with the names that there are where `name` is none of them."""
    return load_named("devices", name, DeviceProfile)
