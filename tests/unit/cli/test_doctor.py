"""`edge doctor` on machines of every kind."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

from edge.board import Board
from edge.cli.doctor import gpu_problems, machine_row
from edge.engine_library import LibraryFound, NoLibrary
from edge.gpu import GpuDevice, GpuFound, NoGpu
from edge.machine import Machine

NO_DRIVER = NoGpu("no NVIDIA driver (libcuda.so.1)", "Install it")
NANO = Board("Jetson Orin Nano Developer Kit", "tegra234", "orin-nano-8", True, "36.4.3", "6.2", "25W")
ORIN = GpuFound("libcuda.so.1", "12.6", (GpuDevice("Orin", "8.7", 7_990_000_000, True),))
A10 = GpuFound("libcuda.so.1", "13.0", (GpuDevice("NVIDIA A10", "8.6", 23_830_000_000, False),))
TENSORRT = LibraryFound("tensorrt", "10.3.0.30", 12)
RTX = LibraryFound("tensorrt-rtx", "1.7.1.116", 13)
NO_TENSORRT = NoLibrary("TensorRT is not installed for python", "sudo apt install tensorrt")
NO_RTX = NoLibrary("TensorRT-RTX is not installed for python", "pip install tensorrt-rtx-cu13")

ON_NANO = Machine(NANO, ORIN, "orin-nano-8", True)
WITH_A10 = Machine(None, A10, "a10", True)
PLAIN = Machine(None, NO_DRIVER, None, False)


def test_a_board_shows_what_it_is() -> None:
    assert machine_row(ON_NANO) == {
        "board": "Jetson Orin Nano Developer Kit",
        "jetpack": "6.2",
        "jetson_linux": "36.4.3",
        "power_mode": "25W",
        "gpu": "Orin, sm 8.7, 8.0 GB",
        "driver": "CUDA 12.6, libcuda.so.1",
        "target": "orin-nano-8",
    }
    unsure = replace(NANO, jetson_linux=None, jetpack=None, power_mode=None)
    row = machine_row(replace(ON_NANO, board=unsure))
    assert (row["jetpack"], row["jetson_linux"], row["power_mode"]) == ("unknown", "unknown", "unknown")


def test_an_unknown_board_or_card_is_told_which_profile_stands_for_it() -> None:
    board = replace(NANO, target="jetson-generic", is_known=False)
    row = machine_row(Machine(board, ORIN, "jetson-generic", False))
    assert str(row["target"]).startswith("jetson-generic (this board has no profile of its own: its memory is read here")
    row = machine_row(Machine(None, A10, "cuda-sm86", False))
    assert str(row["target"]).startswith("cuda-sm86 (this card has no profile of its own")


def test_a_machine_without_a_gpu_lacks_nothing_but_says_why_there_is_none() -> None:
    row = machine_row(PLAIN)
    assert row["gpu"] == "none: no NVIDIA driver (libcuda.so.1)"
    assert {row[name] for name in ("board", "jetpack", "driver", "target")} == {None}
    assert gpu_problems(PLAIN, NO_TENSORRT, RTX, "x86_64") == []


def test_engines_for_cards_need_their_library_here_where_it_can_be_had() -> None:
    (problem,) = gpu_problems(PLAIN, NO_TENSORRT, NO_RTX, "x86_64")
    expected = "edge build for a10, a10g, cuda-sm86, cuda-sm89, l4: TensorRT-RTX is not installed for python. pip install"
    assert problem.startswith(expected)
    assert gpu_problems(PLAIN, NO_TENSORRT, NO_RTX, "aarch64") == []


def test_the_last_step_needs_tensorrt_on_its_device() -> None:
    (problem,) = gpu_problems(ON_NANO, NO_TENSORRT, NO_RTX, "aarch64")
    assert problem == ("edge build --finish, for orin-nano-8: TensorRT is not installed for python. sudo apt install tensorrt")
    (problem,) = gpu_problems(WITH_A10, NO_TENSORRT, RTX, "x86_64")
    assert problem.startswith("edge build --finish, for a10: ")
    assert gpu_problems(ON_NANO, TENSORRT, NO_RTX, "aarch64") == []
    assert gpu_problems(WITH_A10, TENSORRT, RTX, "x86_64") == []


def test_a_board_whose_driver_does_not_answer_is_told_what_to_do() -> None:
    (problem,) = gpu_problems(replace(ON_NANO, gpu=NO_DRIVER), TENSORRT, NO_RTX, "aarch64")
    assert problem == "GPU engines on this board: no NVIDIA driver (libcuda.so.1). Install it"


def test_a_board_in_a_container_is_told_how_to_be_known() -> None:
    hidden = replace(NANO, title="a Jetson whose device tree is hidden", chip=None, target=None, is_known=False)
    for board in (hidden, None):
        found = Machine(board, ORIN, "jetson-generic", False)
        assert str(machine_row(found)["target"]).startswith("jetson-generic (this board has no profile of its own")
        (problem,) = gpu_problems(found, TENSORRT, NO_RTX, "aarch64")
        assert problem == (
            "this board: its device tree is hidden, so it is taken for jetson-generic. In a container: docker run "
            "--security-opt systempaths=unconfined"
        )
    (problem,) = gpu_problems(Machine(hidden, NO_DRIVER, None, False), TENSORRT, NO_RTX, "aarch64")
    assert problem == "GPU engines on this board: no NVIDIA driver (libcuda.so.1). Install it"


def test_hardware_that_engines_are_not_built_for_is_named() -> None:
    thor = Board("Jetson AGX Thor", "tegra264", None, False, "38.4.0", "7.1", None)
    (problem,) = gpu_problems(Machine(thor, ORIN, None, False), TENSORRT, NO_RTX, "aarch64")
    assert problem == "Jetson AGX Thor: its chip tegra264 is no target; engines are built for Orin. Use --target cpu"
    h200 = GpuFound("libcuda.so.1", "13.0", (GpuDevice("NVIDIA H200", "9.0", 141 * 10**9, False),))
    (problem,) = gpu_problems(Machine(None, h200, None, False), TENSORRT, RTX, "x86_64")
    assert problem == "NVIDIA H200, sm 9.0, 141.0 GB: engines are not built for sm 9.0. Use --target cpu"


def test_the_command_imports_no_tensorrt() -> None:
    code = (
        "import sys\nfrom edge.cli.main import main\n"
        "try: main(['doctor'])\nfinally: print(sorted({'tensorrt', 'tensorrt_rtx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("[]\n")
    assert "tensorrt-rtx" in done.stdout
