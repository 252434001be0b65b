"""What an engine is built for. Owns: device profiles (yaml/devices), and that each of their numbers has a source. Needs:
yamls. Never: measuring; a profile states."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, Literal

from edge.errors import ConfigError
from edge.yamls import load_named, yaml_names

EngineKind = Literal["cpu", "tensorrt", "tensorrt-rtx"]

# How a source begins that needs no address: an estimate, a measurement of ours, or a choice.
ESTIMATE, MEASURED, CHOSEN = "estimate: ", "measured: ", "chosen: "

_NUMBER = re.compile(r"\d+(\.\d+)*")  # versions and compute capabilities are text to YAML, and numbers that need a source


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Bytes of a process beside weights, pool and workspace."""

    base_bytes: int  # interpreter, libraries, native core
    text_bytes: int  # tokenizer and chat template


@dataclass(frozen=True, slots=True)
class BuildLimits:
    """What a TensorRT builder may take on the device."""

    workspace_bytes: int  # MemoryPoolType.WORKSPACE
    tactic_dram_bytes: int  # MemoryPoolType.TACTIC_DRAM; where memory is unified it counts all that the builder holds


@dataclass(frozen=True, slots=True)
class Defaults:
    """What `edge build` and `edge plan` take for this device unless asked otherwise."""

    context: int  # M of linear KV caches, tokens
    prefill_tokens: int  # of one step


@dataclass(frozen=True, slots=True)
class PowerMode:
    """A power mode of a board (nvpmodel)."""

    name: str  # as `nvpmodel -q` prints it
    watts: int | None  # None: no budget, only thermal limits
    sm_count: int  # that are powered
    gpu_mhz: float  # at most
    bandwidth_gbs: float  # of memory, at most, 10^9 bytes/s
    needs_super: bool = False  # only where the board was flashed with its Super configuration (JetPack 6.2 and newer)


@dataclass(frozen=True, slots=True)
class Gpu:
    """The GPU of a device."""

    sm: str  # compute capability: 8.7
    memory_bytes: int  # of the GPU; where memory is unified, of the whole board
    unified: bool  # CPU and GPU share it
    reserved_bytes: int  # of it, what firmware and driver keep: neither MemTotal nor nvidia-smi counts it
    system_bytes: int  # of it, what the running system usually keeps
    runtime_bytes: int  # CUDA context, TensorRT and its kernels, once an engine is loaded
    sm_count: int  # streaming multiprocessors
    gpu_mhz: float  # at which the rates below hold
    fp16_tflops: float  # dense, tensor cores, 10^12 operations/s
    int8_tops: float  # dense, tensor cores: what NVIDIA states of boards, and `fp16_tflops` is derived from
    bandwidth_gbs: float  # of memory, 10^9 bytes/s
    build: BuildLimits
    modes: tuple[PowerMode, ...] = ()  # ascending; (): it always runs as above

    @property
    def usable_bytes(self) -> int:
        """What programs can share when nobody else runs one."""
        return self.memory_bytes - self.reserved_bytes - self.system_bytes


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """One target. Its name, as in `--target`, is the name of its YAML file."""

    title: str
    engines: tuple[EngineKind, ...]  # that can be built for it; the first unless another is asked for
    host: HostMemory
    sources: dict[str, str]  # path of a number (or of what holds several): document, place and address, or a reason
    gpu: Gpu | None = None
    defaults: Defaults | None = None
    tensorrt: dict[str, str] = field(default_factory=dict)  # JetPack: the TensorRT that it brings
    generic: bool = False  # it stands for every device that has no profile of its own

    def source(self, path: str) -> str | None:
        """Where the number at `path` (gpu.sm_count, gpu.modes.watts) comes from: the closest source that covers it."""
        while path and path not in self.sources:
            path = path.rpartition(".")[0]
        return self.sources.get(path)

    def is_estimate(self, path: str) -> bool:
        return (self.source(path) or "").startswith(ESTIMATE)


def device_names() -> tuple[str, ...]:
    """Every target, sorted."""
    return yaml_names("devices")


@cache
def load_device(name: str) -> DeviceProfile:
    """ConfigError with the names that there are where `name` is none of them, and where a number has no source."""
    profile = load_named("devices", name, DeviceProfile)
    check_sources(name, profile)
    return profile


def check_sources(name: str, profile: DeviceProfile) -> None:
    """ConfigError where a number of `profile` has no source, or a source no number."""
    paths = {path for path, _ in numbers_of(profile)}
    for path in sorted(paths):
        if not profile.source(path):
            raise ConfigError(f"devices/{name}.yaml: {path} has no source. Say under `sources` where the number comes from")
    for path in profile.sources:
        if not any(number == path or number.startswith(f"{path}.") for number in paths):
            raise ConfigError(f"devices/{name}.yaml: sources: {path}: there is no such number. Remove it, or correct its path")


def numbers_of(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, number) of every number in a profile; the items of a list share one path."""
    if is_dataclass(value):
        for part in fields(value):
            if part.name != "sources":
                yield from numbers_of(getattr(value, part.name), f"{path}.{part.name}".lstrip("."))
    elif isinstance(value, tuple):
        for item in value:
            yield from numbers_of(item, path)
    elif isinstance(value, dict):
        for item in value.values():
            yield from numbers_of(item, path)
    elif (isinstance(value, int | float) and not isinstance(value, bool)) or (
        isinstance(value, str) and _NUMBER.fullmatch(value)
    ):
        yield path, value


def choose_engine(target: str, asked: EngineKind | None) -> EngineKind:
    """The kind of engine for `target`: `asked`, or its first. ConfigError for a target that is unknown or does not run it."""
    kinds = load_device(target).engines
    if asked is None:
        return kinds[0]
    if asked not in kinds:
        raise ConfigError(f"--engine {asked}: {target} runs {', '.join(kinds)}. Choose of these, or another --target")
    return asked
