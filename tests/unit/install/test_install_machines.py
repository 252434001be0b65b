"""install.sh on each kind of machine: what it finds, which Python, what it would install, what it says to do next."""

from __future__ import annotations

import pytest
from fake_machine import FakeMachine

from edge.board import find_board
from edge.machine import CARDS

AGX = "NVIDIA Jetson AGX Orin Developer Kit"


def dry(machine: FakeMachine, *words: str, **changes: str) -> list[str]:
    done = machine.run("--dry-run", *words, **changes)
    assert (done.returncode, done.stderr) == (0, "")
    assert machine.log == []
    return done.stdout.splitlines()


def pip_words(lines: list[str]) -> list[str]:
    """What each pip command would install, options left out."""
    commands = [line.partition(" -m pip install ")[2] for line in lines if "would run" in line and " -m pip install " in line]
    return [" ".join(word for word in command.split() if not word.startswith("--")) for command in commands]


@pytest.mark.parametrize(
    ("release", "package", "jetpack"),
    [
        ("36.4.0", "6.1+b123", "6.1"),
        ("36.4.3", "6.2+b77", "6.2"),
        ("36.4.4", "6.2.1+b38", "6.2.1"),
        ("36.4.7", "6.2.1+b38", "6.2.1"),
        ("36.5.0", "6.2.2+b24", "6.2.2"),
    ],
)
def test_jetpack_6_gets_the_runtime_by_the_systems_python(
    machine: FakeMachine, release: str, package: str, jetpack: str
) -> None:
    machine.jetpack_6(release, package)
    python = machine.root / "usr/bin/python3.10"
    lines = dry(machine)
    assert lines == [
        f"==> Machine: NVIDIA Jetson Orin NX Engineering Reference Developer Kit, JetPack {jetpack}, L4T {release}, aarch64",
        f"    CUDA 12.6: {machine.root}/usr/local/cuda/bin/nvcc",
        "    TensorRT 10.3.0.30 of the system, for its Python 3.10",
        f"==> Python 3.10: {python}, the system's, because the system's TensorRT belongs to it",
        "    It runs and finishes packages. Exporting a model and the first part of a build need Python 3.11 (ONNX with",
        "    opset 24) and happen on a PC, so onnx and onnxruntime stay out.",
        "==> Virtual environment .venv, so that nothing outside this folder changes; it sees the system's TensorRT",
        f"    would run: {python} -m venv --system-site-packages .venv",
        "==> edge-zero into it: compiles the native core, a minute or two; numpy>=1.26,<2, which TensorRT was built for",
        "    would run: .venv/bin/python -m pip install --quiet --quiet --disable-pip-version-check --prefer-binary . "
        "numpy>=1.26,<2",
        f"==> pycuda, for GPU memory and launches: compiled with {machine.root}/usr/local/cuda/bin/nvcc, several minutes",
        "    would run: .venv/bin/python -m pip install pycuda>=2024.1",
        "==> jetson-stats, for power and temperatures",
        "    would run: .venv/bin/python -m pip install --only-binary jetson-stats jetson-stats>=7.2",
        "    Its service is not installed, so it has nothing to read yet. To install that, system-wide: "
        "sudo pip3 install -U jetson-stats",
        "==> Next:",
        "    .venv/bin/edge doctor: what this machine offers, and what it is called as a target",
        "    on a PC, edge build MODEL --tier int4 --target orin-nx-16; copy NAME.edge here",
        "    .venv/bin/edge build NAME.edge --finish: the last step, by this board's TensorRT",
        "    .venv/bin/edge chat NAME.edge: a package for the CPU runs as it is, wherever it was built",
    ]
    board = find_board(machine.root)
    assert board is not None
    assert board.jetpack == jetpack  # `edge doctor` calls it the same


@pytest.mark.parametrize(("release", "package", "jetpack"), [("39.2.0", "7.2-b187", "7.2"), ("39.2.1", "7.2.1-b49", "7.2.1")])
def test_jetpack_7_can_build_too(machine: FakeMachine, release: str, package: str, jetpack: str) -> None:
    machine.jetpack_7(release, package, model=AGX, module="p3701-0005")
    lines = dry(machine)
    assert lines[:4] == [
        f"==> Machine: {AGX}, JetPack {jetpack}, L4T {release}, aarch64",
        f"    CUDA 13.2: {machine.root}/usr/local/cuda/bin/nvcc",
        "    TensorRT 10.16.2.10 of the system, for its Python 3.12",
        f"==> Python 3.12: {machine.root}/usr/bin/python3.12, the system's, because the system's TensorRT belongs to it",
    ]
    assert f"    would run: {machine.root}/usr/bin/python3.12 -m venv --system-site-packages .venv" in lines
    assert pip_words(lines) == [".[build] numpy>=1.26,<2", "pycuda>=2024.1", "jetson-stats jetson-stats>=7.2"]
    assert any("sudo pip3 install --break-system-packages -U jetson-stats" in line for line in lines)
    assert lines[-3:] == [
        "    on a PC, edge build MODEL --tier int4 --target orin-agx-64; copy NAME.edge here",
        "    .venv/bin/edge build NAME.edge --finish: the last step, by this board's TensorRT",
        "    .venv/bin/edge build MODEL --tier int4 --target cpu: an engine for the CPU",
    ]


def test_a_board_without_its_components_is_told_the_packages(machine: FakeMachine) -> None:
    """JetPack 7.2's image brings Jetson Linux alone."""
    machine.jetson("39.2.0")
    machine.system_python("3.12")
    machine.packages(nvidia_l4t_core="39.2.0-20260601")
    lines = dry(machine)
    assert lines[1:3] == ["    No nvcc in /usr/local/cuda/bin.", "    No TensorRT in the system's packages."]
    assert (
        "    For TensorRT engines the system lacks: apt-get install python3-libnvinfer nvidia-cuda-dev, "
        "or ./install.sh --system. Going on without." in lines
    )
    assert "==> pycuda: left out, because compiling it needs nvcc. Once that is installed, run this again" in lines
    assert any("--system-site-packages" in line for line in lines)  # so that TensorRT is seen when it comes
    machine.program(machine.bin / "apt-get", "exit 1")
    lines = dry(machine, "--system")
    assert "==> System packages: python3-libnvinfer nvidia-cuda-dev" in lines
    assert any(
        line.endswith("apt-get install -y -qq --no-install-recommends python3-libnvinfer nvidia-cuda-dev") for line in lines
    )


def test_libraries_without_their_python_module_are_not_taken_for_tensorrt(machine: FakeMachine) -> None:
    machine.jetson("36.4.3")
    machine.system_python("3.10")
    machine.packages(libnvinfer10="10.3.0.30-1+cuda12.5")
    assert "    TensorRT 10.3.0.30 of the system, without its Python module (package python3-libnvinfer)" in dry(machine)


def test_a_container_is_known_by_its_packages(machine: FakeMachine) -> None:
    machine.jetpack_6()
    (machine.root / "etc/nv_tegra_release").unlink()
    assert "JetPack 6.2, L4T 36.4.3, aarch64" in dry(machine)[0]


@pytest.mark.parametrize(
    ("release", "jetpack", "reason"),
    [
        ("32.7.4", "4 or older", "it is too old for EdgeZero's TensorRT engines"),
        ("35.4.1", "5", "its TensorRT is 8; EdgeZero needs 10.3. Flash JetPack 6.2"),
        ("36.3.0", "6.0", "its TensorRT is 8.6; EdgeZero needs 10.3, which JetPack 6.1 brings"),
        (
            "38.2.0",
            "7.0 or 7.1",
            "that is for Jetson Thor, for which EdgeZero has no target; Jetson Orin needs 6.1 or newer, or 7.2",
        ),
        ("39.0.0", "7.2 early access", "update it to JetPack 7.2 (L4T 39.2)"),
    ],
)
def test_a_jetpack_that_cannot_have_tensorrt_engines_gets_those_for_the_cpu(
    machine: FakeMachine, release: str, jetpack: str, reason: str
) -> None:
    machine.jetson(release)
    lines = dry(machine)
    assert lines[0].endswith(f", JetPack {jetpack}, L4T {release}, aarch64")
    assert lines[1] == f"    Only CPU engines will work here: {reason}."
    assert lines[2] == f"==> Python 3.11: {machine.bin}/python3"  # what PATH has
    assert pip_words(lines) == [".[build]", "jetson-stats jetson-stats>=7.2"]
    assert not any("--finish" in line or "system-site" in line or "pycuda" in line for line in lines)


def test_thor_gets_engines_for_the_cpu_on_any_jetpack(machine: FakeMachine) -> None:
    machine.jetpack_7(model="NVIDIA Jetson AGX Thor Developer Kit", module="p3834-0008", chip="tegra264")
    lines = dry(machine)
    assert lines[1] == "    Only CPU engines will work here: EdgeZero has no target for Jetson Thor."
    assert pip_words(lines) == [".[build]", "jetson-stats jetson-stats>=7.2"]


def test_a_jetpack_of_the_future_is_said_to_be_unknown(machine: FakeMachine) -> None:
    machine.jetson("40.1.0")
    lines = dry(machine)
    assert lines[0].endswith("Developer Kit, L4T 40.1.0, aarch64")
    assert lines[1] == ("    Only CPU engines will work here: this release of EdgeZero knows no such JetPack; a newer one may.")


@pytest.mark.parametrize("text", ["", "# R36 garbled", "\0\0"])
def test_a_release_file_that_says_nothing_is_said_to_say_nothing(machine: FakeMachine, text: str) -> None:
    machine.jetson("36.4.3")
    machine.write("etc/nv_tegra_release", text)
    lines = dry(machine)
    assert lines[0].endswith("Developer Kit, L4T unknown, aarch64")
    assert "neither /etc/nv_tegra_release nor the package nvidia-l4t-core says which JetPack this is" in lines[1]


@pytest.mark.parametrize(("release", "jetpack", "newest"), [("36.6.1", "6", "36.5.0"), ("39.3.0", "7", "39.2.1")])
def test_a_newer_jetson_linux_of_a_known_jetpack_goes_on_and_says_so(
    machine: FakeMachine, release: str, jetpack: str, newest: str
) -> None:
    (machine.jetpack_6 if jetpack == "6" else machine.jetpack_7)(release)
    lines = dry(machine)
    assert lines[1] == (
        f"    L4T {release} is not one that EdgeZero was written for (up to {newest}); going on as for JetPack {jetpack}."
    )
    assert any("--system-site-packages" in line for line in lines)


def test_a_module_without_a_profile_is_called_generic(machine: FakeMachine) -> None:
    machine.jetpack_6(module="p3701-0008")
    assert any("--target jetson-generic;" in line for line in dry(machine))


def test_a_jetpack_whose_python_is_gone_goes_on_and_says_what_is_lost(machine: FakeMachine) -> None:
    machine.jetpack_6()
    (machine.root / "usr/bin/python3.10").unlink()
    machine.python("3.11", machine.bin / "python3")
    lines = dry(machine)
    assert (
        f"    JetPack's own Python 3.10 is not at {machine.root}/usr/bin: without it TensorRT cannot be seen. "
        "Mend: apt-get install python3.10" in lines
    )
    assert not any("--system-site-packages" in line for line in lines)


def test_another_python_than_the_boards_is_told_that_it_will_not_see_tensorrt(machine: FakeMachine) -> None:
    machine.jetpack_6()
    python = machine.python("3.12", machine.state / "python3.12")
    lines = dry(machine, PYTHON=str(python))
    assert f"==> Python 3.12: {python}, as PYTHON says" in lines
    assert f"    The system's TensorRT belongs to {machine.root}/usr/bin/python3.10: this environment will not see it." in lines
    assert pip_words(lines)[0] == ".[build]"


@pytest.mark.parametrize(
    ("service", "form", "words"),
    [
        ("4.3.2", "dist-info", "jetson-stats==4.3.*"),
        ("4.3.2-py3.10", "egg-info", "jetson-stats==4.3.*"),
        ("7.2.1", "dist-info", "jetson-stats jetson-stats==7.2.*"),
    ],
)
def test_jetson_stats_has_the_version_of_its_service(machine: FakeMachine, service: str, form: str, words: str) -> None:
    machine.jetpack_6()
    machine.jtop_service(service, form)
    lines = dry(machine)
    assert pip_words(lines)[-1] == words
    assert f"==> jetson-stats, for power and temperatures: version {service.partition('-')[0]}, as its service" in lines
    assert not any("Its service is not installed" in line for line in lines)


@pytest.mark.parametrize(("name", "target"), [*CARDS.items(), ("NVIDIA GeForce RTX 3060", "a10")])
def test_a_cuda_host_is_told_how_to_build_for_its_card(machine: FakeMachine, name: str, target: str) -> None:
    machine.card(name)
    machine.cuda("13.0")
    lines = dry(machine)
    assert lines == [
        f"==> Machine: x86_64 with {name}, driver 580.95.05",
        f"    CUDA 13.0: {machine.root}/usr/local/cuda/bin/nvcc",
        "    No TensorRT in the system's packages.",
        f"==> Python 3.11: {machine.bin}/python3",
        "==> Virtual environment .venv, so that nothing outside this folder changes",
        f"    would run: {machine.bin}/python3 -m venv .venv",
        "==> edge-zero[build] into it: compiles the native core, a minute or two",
        "    would run: .venv/bin/python -m pip install --quiet --quiet --disable-pip-version-check --prefer-binary .[build]",
        f"==> pycuda, for GPU memory and launches: compiled with {machine.root}/usr/local/cuda/bin/nvcc, several minutes",
        "    would run: .venv/bin/python -m pip install pycuda>=2024.1",
        "==> Next:",
        "    .venv/bin/edge doctor: what this machine offers, and what it is called as a target",
        "    .venv/bin/edge build MODEL --tier int4 --target cpu: an engine for the CPU",
        f"    ./install.sh --with rtx (a download of 370 MB), then .venv/bin/edge build MODEL --tier int4 --target {target}",
        "    for engines of the full TensorRT instead (--engine tensorrt): .venv/bin/python -m pip install tensorrt-cu13",
    ]
    lines = dry(machine, "--with", "rtx,server")
    assert pip_words(lines)[0] == ".[build,rtx,server]"
    assert lines[-2] == (
        f"    .venv/bin/edge build MODEL --tier int4 --target {target}: an engine of TensorRT-RTX, built without a GPU"
    )


def test_an_older_driver_writes_another_line_and_takes_an_older_tensorrt(machine: FakeMachine) -> None:
    machine.card()
    machine.write(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n",
    )
    lines = dry(machine)
    assert lines[0] == "==> Machine: x86_64 with NVIDIA A10, driver 535.104.05"
    assert lines[-1].endswith(" -m pip install tensorrt-cu12")  # CUDA 13 needs driver 580


def test_a_cuda_hosts_tensorrt_is_seen_where_its_python_can_build(machine: FakeMachine) -> None:
    machine.card()
    machine.system_python("3.12")
    machine.packages(python3_libnvinfer="10.16.1.11-1+cuda13.2")
    machine.tensorrt("10.16.1.11", "3.12")
    lines = dry(machine)
    assert f"    would run: {machine.root}/usr/bin/python3.12 -m venv --system-site-packages .venv" in lines
    assert pip_words(lines)[0] == ".[build] numpy>=1.26,<2"
    assert "full TensorRT" not in lines[-1]


def test_a_cuda_hosts_tensorrt_for_an_older_python_is_left_with_the_way_to_use_it(machine: FakeMachine) -> None:
    machine.card()
    system = machine.python("3.10", machine.root / "usr/bin/python3.10")
    machine.tensorrt("10.3.0", "3.10")
    lines = dry(machine)
    assert f"==> Python 3.11: {machine.bin}/python3" in lines
    assert f"    with it here: PYTHON={system} ./install.sh" in lines
    lines = dry(machine, PYTHON=str(system))
    assert f"    would run: {system} -m venv --system-site-packages .venv" in lines
    assert pip_words(lines)[0] == ". numpy>=1.26,<2"


@pytest.mark.parametrize("header", ["cuda.h", "curand.h"])
def test_pycuda_is_left_out_where_a_header_is_missing(machine: FakeMachine, header: str) -> None:
    machine.card()
    machine.cuda("12.6", headers=tuple({"cuda.h", "curand.h"} - {header}))
    lines = dry(machine)
    assert (
        f"==> pycuda: left out, because compiling it needs {machine.root}/usr/local/cuda/include/{header}. "
        "Once that is installed, run this again" in lines
    )
    assert pip_words(lines) == [".[build]"]


@pytest.mark.parametrize("processor", ["x86_64", "aarch64"])
def test_a_machine_without_a_gpu_gets_what_builds_for_the_cpu(machine: FakeMachine, processor: str) -> None:
    machine.processor(processor)
    machine.cuda("13.0")  # without a driver it is of no use
    lines = dry(machine)
    assert lines[:3] == [
        f"==> Machine: {processor}",
        f"==> Python 3.11: {machine.bin}/python3",
        "==> Virtual environment .venv, so that nothing outside this folder changes",
    ]
    assert pip_words(lines) == [".[build]"]
    assert ("rtx" in lines[-1]) == (processor == "x86_64")


def test_a_gpu_of_an_arm_server_has_no_target(machine: FakeMachine) -> None:
    machine.card("NVIDIA GB10")
    machine.processor("aarch64")
    lines = dry(machine)
    assert lines[:2] == [
        "==> Machine: aarch64 with NVIDIA GB10",
        "    EdgeZero has no target for this GPU: only CPU engines will work here.",
    ]


def test_rtx_is_refused_where_it_cannot_be(machine: FakeMachine) -> None:
    machine.jetpack_7()
    done = machine.run("--with", "rtx", "--dry-run")
    assert done.returncode == 1
    assert done.stderr.startswith("install.sh: --with rtx: tensorrt-rtx-cu13 is for x86-64 alone; on aarch64")
    machine.processor("x86_64")
    done = machine.run("--with", "rtx", "--dry-run", PYTHON=str(machine.python("3.10", machine.state / "python3.10")))
    assert done.returncode == 1
    assert done.stderr.startswith("install.sh: --with rtx builds engines, which needs Python 3.11 or newer; this is 3.10")
