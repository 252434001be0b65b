"""install.sh and each JetPack: which it is, what can be had with it, what to do next."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

import pytest
from fake_machine import CHECKOUT, FakeMachine, pip_words

from edge.board import find_board

PATCHES = ("", ".0", ".1", ".2", ".3", ".4", ".7", ".8")
AGX = "NVIDIA Jetson AGX Orin Developer Kit"


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
    lines = machine.dry()
    assert lines == [
        f"==> Machine: NVIDIA Jetson Orin NX Engineering Reference Developer Kit, JetPack {jetpack}, L4T {release}, aarch64",
        f"    CUDA 12.6: {machine.root}/usr/local/cuda/bin/nvcc",
        "    TensorRT 10.3.0.30 of the system, for its Python 3.10",
        f"==> Python 3.10: {python}, the system's, because the system's TensorRT belongs to it",
        "    It runs packages that were built on a PC: exporting a model needs Python 3.11 (ONNX with opset 24), so onnx and",
        "    onnxruntime stay out.",
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
        "    TensorRT engines need JetPack 7.2 until EdgeZero has the plugin edge::PagedAttention, which JetPack "
        f"{jetpack} needs;",
        "    engines for the CPU work now:",
        "    on a PC, edge build MODEL --tier int4 --target cpu; copy NAME.edge here",
        "    .venv/bin/edge chat NAME.edge: a package for the CPU runs as it is",
    ]


def test_jetpack_6_is_not_asked_for_a_tensorrt_that_it_cannot_use_yet(machine: FakeMachine) -> None:
    machine.jetson("36.4.3")
    machine.system_python("3.10")
    lines = machine.dry()
    assert "    engines for the CPU work now:" in lines
    (lacks,) = [line for line in lines if "the system lacks" in line]
    assert lacks.startswith("    For the GPU the system lacks: apt-get install nvidia-cuda-dev, or")


@pytest.mark.parametrize(("release", "package", "jetpack"), [("39.2.0", "7.2-b187", "7.2"), ("39.2.1", "7.2.1-b49", "7.2.1")])
def test_jetpack_7_can_build_too(machine: FakeMachine, release: str, package: str, jetpack: str) -> None:
    machine.jetpack_7(release, package, model=AGX, module="p3701-0005")
    lines = machine.dry()
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


@pytest.mark.parametrize(
    ("release", "jetpack", "reason"),
    [
        ("32.7.4", "4 or older", "it is too old for EdgeZero's TensorRT engines"),
        ("35.4.1", "5", "its TensorRT is 8; EdgeZero needs 10.15. Flash JetPack 7.2"),
        ("36.3.0", "6.0", "its TensorRT is 8.6; EdgeZero needs 10.15, and JetPack 7.2 brings 10.16"),
        ("38.2.0", "7.0", "that is for Jetson Thor, for which EdgeZero has no target; Jetson Orin needs 7.2"),
        ("39.0.0", "7.2 early access", "update it to JetPack 7.2 (L4T 39.2)"),
    ],
)
def test_a_jetpack_that_cannot_have_tensorrt_engines_gets_those_for_the_cpu(
    machine: FakeMachine, release: str, jetpack: str, reason: str
) -> None:
    machine.jetson(release)
    lines = machine.dry()
    assert lines[0].endswith(f", JetPack {jetpack}, L4T {release}, aarch64")
    assert lines[1] == f"    Only CPU engines will work here: {reason}."
    assert lines[2] == f"==> Python 3.11: {machine.bin}/python3"  # what PATH has
    assert pip_words(lines) == [".[build]", "jetson-stats jetson-stats>=7.2"]
    assert not any("--finish" in line or "system-site" in line or "pycuda" in line for line in lines)


def test_thor_gets_engines_for_the_cpu_on_any_jetpack(machine: FakeMachine) -> None:
    machine.jetpack_7(model="NVIDIA Jetson AGX Thor Developer Kit", module="p3834-0008", chip="tegra264")
    lines = machine.dry()
    assert lines[1] == "    Only CPU engines will work here: EdgeZero has no target for Jetson Thor."
    assert pip_words(lines) == [".[build]", "jetson-stats jetson-stats>=7.2"]


def test_a_jetpack_of_the_future_is_said_to_be_unknown(machine: FakeMachine) -> None:
    machine.jetson("40.1.0")
    lines = machine.dry()
    assert lines[0].endswith("Developer Kit, L4T 40.1.0, aarch64")
    assert lines[1] == ("    Only CPU engines will work here: this release of EdgeZero knows no such JetPack; a newer one may.")


@pytest.mark.parametrize("text", ["", "# R36 garbled", "\0\0"])
def test_a_release_file_that_says_nothing_is_said_to_say_nothing(machine: FakeMachine, text: str) -> None:
    machine.jetson("36.4.3")
    machine.write("etc/nv_tegra_release", text)
    lines = machine.dry()
    assert lines[0].endswith("Developer Kit, L4T unknown, aarch64")
    assert "neither /etc/nv_tegra_release nor the package nvidia-l4t-core says which JetPack this is" in lines[1]


@pytest.mark.parametrize(("release", "jetpack", "newest"), [("36.6.1", "6", "36.5.0"), ("39.3.0", "7", "39.2.1")])
def test_a_newer_jetson_linux_of_a_known_jetpack_goes_on_and_says_so(
    machine: FakeMachine, release: str, jetpack: str, newest: str
) -> None:
    (machine.jetpack_6 if jetpack == "6" else machine.jetpack_7)(release)
    lines = machine.dry()
    assert lines[1] == (
        f"    L4T {release} is not one that EdgeZero was written for (up to {newest}); going on as for JetPack {jetpack}."
    )
    assert any("--system-site-packages" in line for line in lines)


def test_a_container_is_known_by_its_packages(machine: FakeMachine) -> None:
    machine.jetpack_6()
    (machine.root / "etc/nv_tegra_release").unlink()
    assert "JetPack 6.2, L4T 36.4.3, aarch64" in machine.dry()[0]


def in_the_script(commands: str, words: Iterable[str]) -> str:
    """What `commands` print where the parts of install.sh are known."""
    sourced = "set -euo pipefail; . edge/install/words.sh; . edge/install/machine.sh; " + commands
    done = subprocess.run(["bash", "-c", sourced, "-", *words], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    return done.stdout


def test_the_script_and_doctor_call_every_jetson_linux_the_same_jetpack(machine: FakeMachine) -> None:
    """The script has no Python yet when it asks, so it has a table of its own."""
    releases = [f"{major}.{minor}{patch}" for major in (36, 38, 39) for minor in range(7) for patch in PATCHES]
    known: dict[str, str | None] = {}
    for release in releases:
        machine.jetson(release)
        board = find_board(machine.root)
        assert board is not None
        known[release] = board.jetpack
    assert {"6.0", "6.1", "6.2", "6.2.1", "6.2.2", "7.0", "7.1", "7.2", "7.2.1"} == set(known.values()) - {None}

    said = in_the_script('for l4t; do jetpack="" board_python=""; read_jetpack; done', releases)
    for release, text in zip(releases, said.split("==> Machine: ")[1:], strict=True):
        jetpack = known[release]
        if jetpack is not None:
            assert f", JetPack {jetpack}, L4T {release}, " in text
            assert "not one that EdgeZero was written for" not in text
        elif "Only CPU engines" not in text:
            newest = max(name for name, title in known.items() if title is not None and name[:2] == release[:2])
            assert f"L4T {release} is not one that EdgeZero was written for (up to {newest})" in text


def test_a_removed_package_of_jetson_linux_says_nothing(machine: FakeMachine) -> None:
    machine.jetson("36.4.3")
    (machine.root / "etc/nv_tegra_release").unlink()
    machine.packages(removed="nvidia-l4t-core")
    assert "L4T unknown" in machine.dry()[0]
    board = find_board(machine.root)
    assert board is not None
    assert board.jetson_linux is None


@pytest.mark.build
def test_the_tensorrt_that_can_finish_is_the_one_whose_graphs_are_made() -> None:
    from engines.tensorrt.lower import READERS

    full = [reader for name, reader in READERS.items() if not name.startswith("tensorrt-rtx")]
    (since,) = {reader.since for reader in full if reader.attention == "linear"}
    major, minor = map(int, since.split("."))
    can = [since, f"{since}.1", f"{major}.{minor + 1}.2.10", f"{major + 1}.0"]
    cannot = [f"{major}.{minor - 1}.9", f"{major}.3.0.30", f"{major - 1}.{minor}", str(major), ""]
    said = in_the_script('for v; do if reads_standard_graphs "$v"; then echo "$v"; fi; done', [*can, *cannot])
    assert said.splitlines() == can
