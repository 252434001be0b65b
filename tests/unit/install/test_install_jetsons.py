"""install.sh on a Jetson: its components, its module, its Python, jetson-stats."""

from __future__ import annotations

import pytest
from fake_machine import FakeMachine, pip_words


def test_a_board_without_its_components_is_told_the_packages(machine: FakeMachine) -> None:
    """JetPack 7.2's image brings Jetson Linux alone."""
    machine.jetson("39.2.0")
    machine.system_python("3.12")
    machine.packages(nvidia_l4t_core="39.2.0-20260601")
    lines = machine.dry()
    assert lines[1:3] == ["    No nvcc in /usr/local/cuda/bin.", "    No TensorRT in the system's packages."]
    assert (
        "    For the GPU the system lacks: apt-get install python3-libnvinfer nvidia-cuda-dev, "
        "or ./install.sh --system. Going on without." in lines
    )
    assert "==> pycuda: left out, because compiling it needs nvcc. Once that is installed, run this again" in lines
    assert any("--system-site-packages" in line for line in lines)  # so that TensorRT is seen when it comes
    machine.program(machine.bin / "apt-get", "exit 1")
    lines = machine.dry("--system")
    assert "==> System packages: python3-libnvinfer nvidia-cuda-dev" in lines
    assert any(
        line.endswith("apt-get install -y -qq --no-install-recommends python3-libnvinfer nvidia-cuda-dev") for line in lines
    )


def test_libraries_without_their_python_module_are_not_taken_for_tensorrt(machine: FakeMachine) -> None:
    machine.jetson("36.4.3")
    machine.system_python("3.10")
    machine.packages(libnvinfer10="10.3.0.30-1+cuda12.5")
    assert "    TensorRT 10.3.0.30 of the system, without its Python module (package python3-libnvinfer)" in machine.dry()


def test_a_module_without_a_profile_is_called_generic(machine: FakeMachine) -> None:
    machine.jetpack_7(module="p3701-9999")
    assert any("--target jetson-generic;" in line for line in machine.dry())


def test_a_jetpack_whose_python_is_gone_goes_on_and_says_what_is_lost(machine: FakeMachine) -> None:
    machine.jetpack_6()
    (machine.root / "usr/bin/python3.10").unlink()
    machine.python("3.11", machine.bin / "python3")
    lines = machine.dry()
    assert (
        f"    The system's own Python 3.10 is not at {machine.root}/usr/bin: without it TensorRT cannot be seen. "
        "Mend: apt-get install python3.10" in lines
    )
    assert not any("--system-site-packages" in line for line in lines)


def test_another_python_than_the_boards_is_told_that_it_will_not_see_tensorrt(machine: FakeMachine) -> None:
    machine.jetpack_7()
    python = machine.python("3.13", machine.state / "python3.13")
    lines = machine.dry(PYTHON=str(python))
    assert f"==> Python 3.13: {python}, as PYTHON says" in lines
    assert f"    The system's TensorRT belongs to {machine.root}/usr/bin/python3.12: this environment will not see it." in lines
    assert pip_words(lines)[0] == ".[build]"
    assert not any("--finish" in line for line in lines)


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
    lines = machine.dry()
    assert pip_words(lines)[-1] == words
    assert f"==> jetson-stats, for power and temperatures: version {service.partition('-')[0]}, as its service" in lines
    assert not any("Its service is not installed" in line for line in lines)
