"""What the NVIDIA driver says of this machine: a script that `gpu.probe_gpu` runs in a process of its own, which prints JSON.

Owns: calls into libcuda. Needs: ctypes alone. Never: an import of edge, so that it starts in some 30 ms.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

# Where libcuda lies when the loader does not find it: L4T 36 and newer, L4T 35, and WSL.
LIBRARIES = (
    "libcuda.so.1",
    "/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1",
    "/usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
)

# cuda.h, CUdevice_attribute
_INTEGRATED = 18
_CAPABILITY_MAJOR = 75
_CAPABILITY_MINOR = 76


class CallFailed(Exception):
    """A function of the driver gave an error."""

    def __init__(self, function: str, name: str, code: int) -> None:
        super().__init__(function, name, code)
        self.answer = {"function": function, "name": name, "code": code}


def ask_driver(libraries: Sequence[str]) -> dict[str, Any]:
    """The answer of the first of `libraries` that is there: of `found`, `failed` (a call and its error) and `unusable` (why
    it cannot be loaded) one is not None; all three are where there is no driver. CUDA_VISIBLE_DEVICES counts, as everywhere.
    """
    answer: dict[str, Any] = {"found": None, "failed": None, "unusable": None}
    for name in libraries:
        try:
            cuda = ctypes.CDLL(name)
        except OSError as error:
            if str(error).startswith(f"{name}: cannot open shared object file: No such file"):
                continue
            return answer | {"unusable": str(error)}
        try:
            return answer | {"found": {"library": name, **_gpus(cuda)}}
        except CallFailed as error:
            return answer | {"failed": error.answer}
        except AttributeError as error:  # a function that this libcuda lacks
            return answer | {"unusable": str(error)}
    return answer


def _gpus(cuda: ctypes.CDLL) -> dict[str, Any]:
    _call(cuda, "cuInit", ctypes.c_uint(0))
    gpus = []
    for ordinal in range(_number(cuda, "cuDeviceGetCount")):
        device = ctypes.c_int(_number(cuda, "cuDeviceGet", ctypes.c_int(ordinal)))
        name = ctypes.create_string_buffer(256)
        _call(cuda, "cuDeviceGetName", name, ctypes.c_int(len(name)), device)
        memory = ctypes.c_size_t()
        _call(cuda, "cuDeviceTotalMem_v2", ctypes.byref(memory), device)
        major, minor, integrated = (
            _number(cuda, "cuDeviceGetAttribute", ctypes.c_int(attribute), device)
            for attribute in (_CAPABILITY_MAJOR, _CAPABILITY_MINOR, _INTEGRATED)
        )
        gpus.append(
            {
                "name": name.value.decode("utf-8", "replace"),
                "sm": f"{major}.{minor}",
                "memory_bytes": memory.value,
                "integrated": bool(integrated),
            }
        )
    version = _number(cuda, "cuDriverGetVersion")  # 1000 * major + 10 * minor
    return {"cuda": f"{version // 1000}.{version % 1000 // 10}", "gpus": gpus}


def _number(cuda: ctypes.CDLL, function: str, *arguments: Any) -> int:
    """What a function writes to its first argument."""
    result = ctypes.c_int()
    _call(cuda, function, ctypes.byref(result), *arguments)
    return result.value


def _call(cuda: ctypes.CDLL, function: str, *arguments: Any) -> None:
    code = getattr(cuda, function)(*arguments)
    if code != 0:
        name = ctypes.c_char_p()
        cuda.cuGetErrorName(code, ctypes.byref(name))
        raise CallFailed(function, (name.value or b"an unknown error").decode("ascii", "replace"), code)


if __name__ == "__main__":
    # What a driver prints must not stand in the answer.
    answer = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(answer, "w") as file:
        json.dump(ask_driver(sys.argv[1:] or LIBRARIES), file)
