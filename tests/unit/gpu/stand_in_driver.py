"""A libcuda that answers as it is told. Owns: its C source, its compilation. Needs: a C compiler. Never: CUDA."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

# The behaviour is compiled in: a driver reads no options either.
SOURCE = r"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int CUdevice;

int cuInit(unsigned flags) {
  printf("a driver that talks\n");
  fflush(stdout);
  if (HANGS) for (;;) pause();
  if (CRASHES) raise(SIGSEGV);
  return INIT;
}
int cuDriverGetVersion(int* version) { *version = VERSION; return 0; }
int cuDeviceGetCount(int* count) {
  const char* visible = getenv("CUDA_VISIBLE_DEVICES");
  *count = visible && !*visible ? 0 : COUNT;
  return 0;
}
int cuDeviceGet(CUdevice* device, int ordinal) { *device = ordinal; return ordinal < COUNT ? 0 : 101; }
int cuDeviceGetName(char* name, int length, CUdevice device) { snprintf(name, length, "%s", NAME); return 0; }
int cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) { *bytes = MEMORY; return 0; }
int cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  if (attribute == 75) *value = MAJOR;
  else if (attribute == 76) *value = MINOR;
  else if (attribute == 18) *value = INTEGRATED;
  else return 1;
  return 0;
}
#ifdef ERROR_NAME
int cuGetErrorName(int error, const char** name) { *name = ERROR_NAME; return 0; }
#else
int cuGetErrorName(int error, const char** name) { *name = 0; return 1; }
#endif
"""

A10 = {"NAME": '"NVIDIA A10"', "MAJOR": 8, "MINOR": 6, "MEMORY": "23827906560UL", "VERSION": 13000}
ORIN = {"NAME": '"Orin"', "MAJOR": 8, "MINOR": 7, "MEMORY": "16404467712UL", "VERSION": 12060, "INTEGRATED": 1}
DEFAULTS: dict[str, object] = {"INIT": 0, "COUNT": 1, "INTEGRATED": 0, "HANGS": 0, "CRASHES": 0}


def compile_driver(folder: Path, **behaviour: object) -> Path:
    """libcuda.so.1 in `folder`, an A10's unless told otherwise."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler: cc")
    source, library = folder / "driver.c", folder / "libcuda.so.1"
    source.write_text(SOURCE)
    words = [f"-D{name}={value}" for name, value in (DEFAULTS | A10 | behaviour).items()]
    subprocess.run([compiler, "-shared", "-fPIC", "-w", *words, "-o", library, source], check=True)
    return library
