"""Packages and boards with which the last step is refused, in one line and with the package left as it was."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from built_package import build_tiny
from finish_board import Board, finished, record_of, refusal
from synthetic import TinyModel

from edge.errors import BudgetError, PackageError
from edge.gpu import GpuDevice, GpuFound, NoGpu
from edge.manifest import FILE_NAME
from edge.monitors.memory import machine_memory
from edge.package import GRAPH_WEIGHTS
from engines.tensorrt import finish, finished_plan, limits_here
from engines.tensorrt.library import LibraryMissing

pytestmark = pytest.mark.build
pytest.importorskip("edge._core", reason="needs the native core: pip install .")
pytest.importorskip("onnxruntime", reason="needs the build extra: onnxruntime")


@pytest.fixture
def package(board_build: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(board_build, tmp_path / "model.edge"))


def test_jetpack_6_waits_for_the_plugin_and_is_told_so(package: Path, board: Board) -> None:
    board.version = "10.3.0"
    message = refusal(package)
    assert "needs the plugin edge::PagedAttention" in message and "TensorRT 10.15 or newer (JetPack 7.2)" in message
    assert board.jobs == []


def test_a_tensorrt_that_reads_no_graph_is_refused_with_both_versions(package: Path, board: Board) -> None:
    board.version = "8.6.2"
    assert "need TensorRT 10.3 or newer, here is 8.6.2" in refusal(package)


def test_no_driver_another_gpu_and_no_tensorrt_are_told_apart(package: Path, board: Board) -> None:
    board.gpu = NoGpu("no NVIDIA driver (libcuda.so.1)", "Install it")
    assert "the last step is done on the orin-nx-16, and here is no NVIDIA driver" in refusal(package)
    board.gpu = GpuFound("libcuda.so.1", "13.0", (GpuDevice("NVIDIA A10", "8.6", 24 << 30, integrated=False),))
    assert "is for sm 8.7 (orin-nx-16), this GPU is sm 8.6 (NVIDIA A10)" in refusal(package)


def test_a_missing_library_says_how_to_install_it(package: Path, board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(kind: str) -> str:
        raise LibraryMissing(f"{package}: TensorRT is not installed. Install it")

    monkeypatch.setattr(finish, "need_library", missing)
    assert "Install it" in refusal(package)


def test_memory_is_asked_for_before_the_builder_runs(package: Path, board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_here, "machine_memory", lambda: replace(machine_memory(), available=1 << 30))
    assert "the builder takes about" in refusal(package, BudgetError)
    assert board.jobs == []
    finished(package, ignore_budget=True)


def test_damaged_weights_are_found_before_the_builder_reads_them(package: Path, board: Board) -> None:
    weights = bytearray((package / GRAPH_WEIGHTS).read_bytes())
    weights[100] ^= 1
    (package / GRAPH_WEIGHTS).write_bytes(weights)
    assert "SHA-256" in refusal(package, PackageError)
    assert board.jobs == []


def test_a_builder_that_fails_leaves_the_package_unfinished(package: Path, board: Board) -> None:
    board.refuses["tensorrt-10.15.onnx"] = f"{package}: no kernel fits"
    assert "no kernel fits" in refusal(package)
    assert record_of(package).plan is None


def test_a_refused_int4_graph_names_the_tier_that_needs_no_blocks(package: Path, board: Board) -> None:
    board.refuses["tensorrt-10.15.onnx"] = f"{package}: block size 32"
    assert "edge build" in refusal(package) and "--tier int8" in refusal(package)


def test_a_disk_that_fills_while_the_manifest_is_written_leaves_an_unfinished_package(
    package: Path, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(value: object) -> str:
        raise OSError(28, "No space left on device", str(package / FILE_NAME))

    monkeypatch.setattr(finished_plan, "to_json", full)
    assert "manifest.json: No space left on device" in refusal(package)


def test_a_read_only_package_is_refused_in_one_line(package: Path, board: Board) -> None:
    folder = package / "engine"
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        if os.geteuid() == 0:
            pytest.skip("needs a user other than root")
        assert "Permission denied" in refusal(package)
    finally:
        folder.chmod(stat.S_IRWXU)


def test_a_cpu_package_has_no_last_step(tiny_gguf: Callable[[str | TinyModel], Path], board: Board, tmp_path: Path) -> None:
    build_tiny(tiny_gguf("llama"), tmp_path / "cpu.edge")
    assert "a cpu engine has no last step" in refusal(tmp_path / "cpu.edge")
