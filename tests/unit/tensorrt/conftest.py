"""For every test of this folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # so that tests here may say `from builds import job`

from builds import FAKE

from edge.gpu import GpuDevice, GpuFound
from engines.tensorrt import builder
from engines.tensorrt.library import need_library


@pytest.fixture
def fake_board(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with TensorRT and an Orin, as far as our code can tell."""
    gpu = GpuDevice("Orin", "8.7", 16 << 30, integrated=True)
    monkeypatch.setattr(builder, "probe_gpu", lambda: GpuFound("libcuda.so.1", "12.6", (gpu,)))
    monkeypatch.setenv("PYTHONPATH", str(FAKE))


@pytest.fixture(autouse=True)
def forgotten_library() -> None:
    """Each test finds out anew which library there is."""
    need_library.cache_clear()
