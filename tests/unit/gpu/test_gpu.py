"""What a driver says, and every way in which it can fail to."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from stand_in_driver import ORIN, compile_driver

from edge import gpu_driver
from edge.gpu import GpuDevice, GpuFound, NoGpu, probe_gpu


def test_a_driver_tells_name_capability_memory_and_its_cuda(tmp_path: Path) -> None:
    library = compile_driver(tmp_path)
    a10 = GpuDevice("NVIDIA A10", "8.6", 23_827_906_560, integrated=False)
    assert probe_gpu(library) == GpuFound(str(library), "13.0", (a10,))


def test_an_orin_shares_its_memory(tmp_path: Path) -> None:
    found = probe_gpu(compile_driver(tmp_path, **ORIN))
    assert isinstance(found, GpuFound) and found.cuda == "12.6"
    assert found.first == GpuDevice("Orin", "8.7", 16_404_467_712, integrated=True)
    assert str(found.first) == "Orin, sm 8.7, 16.4 GB"


def test_every_gpu_is_told_and_the_first_is_used(tmp_path: Path) -> None:
    found = probe_gpu(compile_driver(tmp_path, COUNT=3))
    assert isinstance(found, GpuFound) and len(found.gpus) == 3 and found.first is found.gpus[0]


@pytest.mark.parametrize(
    ("code", "name", "remedy"),
    [
        (100, "CUDA_ERROR_NO_DEVICE", "See what nvidia-smi says, and what CUDA_VISIBLE_DEVICES leaves visible"),
        (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "The kernel still has another driver: restart the machine"),
        (999, "CUDA_ERROR_UNKNOWN", "See what nvidia-smi says; restart the machine, or install the driver again"),
    ],
)
def test_an_error_of_the_driver_keeps_its_name_and_number(tmp_path: Path, code: int, name: str, remedy: str) -> None:
    library = compile_driver(tmp_path, INIT=code, ERROR_NAME=f'"{name}"')
    assert probe_gpu(library) == NoGpu(f"the NVIDIA driver gives {name} (cuInit, error {code})", remedy)


def test_an_error_without_a_name_keeps_its_number(tmp_path: Path) -> None:
    found = probe_gpu(compile_driver(tmp_path, INIT=1234))
    assert isinstance(found, NoGpu) and found.reason == "the NVIDIA driver gives an unknown error (cuInit, error 1234)"


def test_a_driver_that_shows_no_gpu_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = probe_gpu(compile_driver(tmp_path))
    assert isinstance(found, NoGpu) and found.reason == "the NVIDIA driver shows no GPU"


def test_a_driver_that_crashes_leaves_this_process_alive(tmp_path: Path) -> None:
    found = probe_gpu(compile_driver(tmp_path, CRASHES=1))
    assert isinstance(found, NoGpu) and found.reason == "the NVIDIA driver ended the process that asked it (SIGSEGV)"


def test_a_driver_that_hangs_is_given_up_and_its_process_ended(tmp_path: Path) -> None:
    library = compile_driver(tmp_path, HANGS=1)
    found = probe_gpu(library, seconds=0.5)
    assert isinstance(found, NoGpu) and found.reason == "the NVIDIA driver did not answer within 0.5 s"
    asking = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(library) in _read(path)]
    assert asking == []


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # a process that has ended since
        return ""


def test_no_driver_is_an_answer(tmp_path: Path) -> None:
    found = probe_gpu(tmp_path / "libcuda.so.1")
    assert isinstance(found, NoGpu) and found.reason == "no NVIDIA driver (libcuda.so.1)"


def test_a_file_that_is_no_library_is_named(tmp_path: Path) -> None:
    library = tmp_path / "libcuda.so.1"
    library.write_bytes(b"not a library")
    found = probe_gpu(library)
    assert isinstance(found, NoGpu) and found.reason.startswith(f"the NVIDIA driver cannot be used: {library}: ")


def test_a_library_that_is_no_driver_is_named(tmp_path: Path) -> None:
    library = compile_driver(tmp_path, cuInit="cuOther")
    found = probe_gpu(library)
    assert isinstance(found, NoGpu) and "undefined symbol: cuInit" in found.reason


def test_an_interpreter_that_cannot_start_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    assert probe_gpu() == NoGpu(
        "the NVIDIA driver could not be asked: No such file or directory", "Free some memory, or end some processes"
    )


def test_where_the_loader_finds_nothing_the_next_place_is_asked(tmp_path: Path) -> None:
    library = str(compile_driver(tmp_path))
    assert gpu_driver.ask_driver(["libnowhere_cuda.so.1", library])["found"]["library"] == library
