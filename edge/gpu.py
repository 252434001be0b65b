"""The GPU of this machine, asked of its driver before any TensorRT object is made: without a driver, making one ends the
process. Owns: GpuFound, NoGpu, the probe. Needs: gpu_driver.py as a process. Never: CUDA in this process.

A process of its own, because a driver that does not fit its kernel module can hang or crash in cuInit, because a process
that has called cuInit must not fork any more, and because the driver takes memory that a plan should not count twice.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from edge import gpu_driver
from edge.exit_codes import ending
from edge.jsons import read_json
from edge.units import human_bytes

_LONGEST_PROBE = 30.0  # seconds; without persistence mode a driver of many GPUs takes several

# What to do about errors of cuInit that have a known cause (CUDA Driver API, CUresult).
_REMEDIES = {
    "CUDA_ERROR_NO_DEVICE": "See what nvidia-smi says, and what CUDA_VISIBLE_DEVICES leaves visible",
    "CUDA_ERROR_STUB_LIBRARY": "The libcuda found is a toolkit's, for linking only: take it off LD_LIBRARY_PATH",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "The kernel still has another driver: restart the machine",
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": "The libcuda found is a cuda-compat package's: take it off LD_LIBRARY_PATH",
    "CUDA_ERROR_SYSTEM_NOT_READY": "Start the services of the driver (nvidia-fabricmanager where there is NVSwitch)",
    "CUDA_ERROR_OUT_OF_MEMORY": "End what fills the memory of the GPU",
}
_IN_A_CONTAINER = "in a container: docker run --gpus all (on a Jetson: --runtime nvidia)"
_RESTART = "See what nvidia-smi says; restart the machine, or install the driver again"


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """One GPU, as its driver describes it."""

    name: str  # NVIDIA A10, Orin
    sm: str  # compute capability: 8.6
    memory_bytes: int  # where memory is unified, of the whole board
    integrated: bool  # CPU and GPU share their memory

    def __str__(self) -> str:
        return f"{self.name}, sm {self.sm}, {human_bytes(self.memory_bytes)}"


@dataclass(frozen=True, slots=True)
class GpuFound:
    """A driver that answers, and the GPUs that this process may use; engines run on the first."""

    library: str  # with which the driver was loaded; a path where the loader would not find libcuda.so.1 itself
    cuda: str  # the newest CUDA that the driver knows: 13.0
    gpus: tuple[GpuDevice, ...]  # at least one

    @property
    def first(self) -> GpuDevice:
        return self.gpus[0]


@dataclass(frozen=True, slots=True)
class NoGpu:
    """Why no GPU can be used here, and what to do about it."""

    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class _FailedCall:
    """An error that a function of the driver gave."""

    function: str
    name: str  # CUDA_ERROR_NO_DEVICE
    code: int


@dataclass(frozen=True, slots=True)
class _Answer:
    """What gpu_driver.py prints; nothing in it: there is no driver."""

    found: GpuFound | None
    failed: _FailedCall | None
    unusable: str | None


def probe_gpu(library: Path | None = None, *, seconds: float = _LONGEST_PROBE) -> GpuFound | NoGpu:
    """What the driver says, in a process of its own that gets `seconds`. Raises nothing, and survives a driver that does not.

    `library`: the libcuda to ask, in place of the machine's.
    """
    # Isolated and without site-packages: 30 ms in place of 100, and nothing of the user's runs in it.
    words = [sys.executable, "-I", "-S", gpu_driver.__file__, *([] if library is None else [str(library)])]
    try:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError as error:
        return NoGpu(f"the NVIDIA driver could not be asked: {error.strerror}", "Free some memory, or end some processes")
    try:
        answer, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return NoGpu(
            f"the NVIDIA driver did not answer within {seconds:g} s", "Try nvidia-smi; where it hangs too, restart the machine"
        )
    finally:
        _end(process)
    if process.returncode != 0:
        fact = f"the NVIDIA driver ended the process that asked it ({ending(process.returncode)})"
        return NoGpu(fact, _RESTART)
    return _read(answer)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process where it still runs. One that hangs in the kernel ends when the kernel lets it: it is not waited for."""
    if process.poll() is None:
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
    assert process.stdout is not None
    process.stdout.close()


def _read(text: bytes) -> GpuFound | NoGpu:
    try:
        answer = read_json(text.decode(), _Answer)
    except ValueError as error:
        return NoGpu(f"the answer of the NVIDIA driver cannot be read ({error})", _RESTART)
    if answer.found is not None:
        return answer.found if answer.found.gpus else NoGpu("the NVIDIA driver shows no GPU", _REMEDIES["CUDA_ERROR_NO_DEVICE"])
    if answer.failed is not None:
        call = answer.failed
        fact = f"the NVIDIA driver gives {call.name} ({call.function}, error {call.code})"
        return NoGpu(fact, _REMEDIES.get(call.name, _RESTART))
    if answer.unusable is not None:
        # Images for Jetson hold empty files in its place, over which the container's runtime lays the host's: "file too short".
        return NoGpu(f"the NVIDIA driver cannot be used: {answer.unusable}", f"Install it again; {_IN_A_CONTAINER}")
    return NoGpu("no NVIDIA driver (libcuda.so.1)", f"Install it; {_IN_A_CONTAINER}")
