"""How a plan is built. Owns: the builder's configuration, the timing cache's file. Needs: `trt`. Never: the network.

TensorRT builds for the GPU of this machine; TensorRT-RTX for the compute capabilities that it is told.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge.errors import BuildError
from engines.tensorrt.job import BuildJob

if TYPE_CHECKING:
    from engines.tensorrt.library import trt


def apply_limits(config: trt.IBuilderConfig, job: BuildJob) -> None:
    """Memory limits, and how much a plan tells of its layers."""
    from engines.tensorrt.library import trt

    # Names of layers only: enough for a profile of an engine, and some MB less than all details.
    config.profiling_verbosity = trt.ProfilingVerbosity.LAYER_NAMES_ONLY
    if job.workspace_bytes is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, job.workspace_bytes)
    if job.tactic_dram_bytes is not None:
        # By default 75 % of the device's memory, which on a Jetson is the memory of everything else, too.
        config.set_memory_pool_limit(trt.MemoryPoolType.TACTIC_DRAM, job.tactic_dram_bytes)


def apply_target(config: Any, sm: str, version: str) -> None:
    """Aims a configuration of TensorRT-RTX at one compute capability. BuildError names those that it has."""
    import tensorrt_rtx

    known = {
        _dotted(name): value for name, value in tensorrt_rtx.ComputeCapability.__members__.items() if name.startswith("SM")
    }
    if sm not in known:
        raise BuildError(
            f"sm {sm}: TensorRT-RTX {version} builds for sm {', '.join(known)}. Choose such a target, or --engine tensorrt"
        )
    config.num_compute_capabilities = 1
    if not config.set_compute_capability(known[sm], 0):
        raise BuildError(f"sm {sm}: TensorRT-RTX {version} refuses it as a target. Choose another target")


def load_timing_cache(config: trt.IBuilderConfig, path: Path) -> str:
    """Gives the configuration the times kept in `path`, else an empty cache. Returns why kept ones were not used, else ""."""
    try:
        kept, reason = path.read_bytes(), ""
    except FileNotFoundError:
        kept, reason = b"", ""
    except OSError as error:
        kept, reason = b"", f"the timing cache {path} could not be read ({error.strerror})"
    if kept and _use_times(config, kept):
        return ""
    if kept:
        reason = f"the timing cache {path} is damaged, or another GPU's or version's, so it was started anew"
    _use_times(config, b"")
    return reason


def _use_times(config: trt.IBuilderConfig, times: bytes) -> bool:
    """Whether the library takes them. Of bytes that it cannot read it makes no cache, which the bindings hand on as None."""
    cache: Any = config.create_timing_cache(times)
    return cache is not None and bool(config.set_timing_cache(cache, False))


def save_timing_cache(config: trt.IBuilderConfig, path: Path) -> str:
    """Keeps the times measured so far, for the next build. Returns why they could not be kept, else ""."""
    cache: Any = config.get_timing_cache()
    if cache is None:
        return "the library kept no times"
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with memoryview(cache.serialize()) as times, new.open("wb") as file:
            file.write(times)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        return f"the timing cache {path} could not be written ({error.strerror})"
    return ""


def _dotted(name: str) -> str:
    """SM86 -> 8.6, SM120 -> 12.0."""
    digits = name.removeprefix("SM")
    return f"{digits[:-1]}.{digits[-1]}"
