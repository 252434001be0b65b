"""install.sh: its words, what it refuses and in which line, what it leaves as it is."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

import pytest
from fake_machine import CHECKOUT, FakeMachine

COMMANDS = ([], ["demo"], ["test"], ["test", "--system"], ["--uninstall"], ["--with", "rtx"], ["wheel"])


def refused(machine: FakeMachine, *words: str, **changes: str) -> str:
    """The one line of the refusal. Nothing may have been made."""
    done = machine.run(*words, **changes)
    assert done.returncode == 1
    assert machine.log == []
    assert not (machine.checkout / ".venv").exists()
    (line,) = done.stderr.splitlines()
    return line.removeprefix("install.sh: ")


def test_help_goes_to_stdout_and_names_every_command(machine: FakeMachine) -> None:
    done = machine.run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("demo", "wheel", "test", "--with", "--arch", "--system", "--uninstall", "--dry-run", "PYTHON="):
        assert word in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["install"], ["--nope"], ["demo", "extra"], ["--uninstall", "--system"], ["--with"], ["--with", "tensorrt"],
        ["test", "--with", "rtx"], ["--with", "rtx", "--uninstall"], ["wheel", "--arch"], ["--arch", "aarch64"],
        ["wheel", "--arch", "riscv64"],
    ],
)  # fmt: skip
def test_a_wrong_word_shows_the_usage_and_exits_with_two(machine: FakeMachine, words: list[str]) -> None:
    done = machine.run(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Usage: ./install.sh" in done.stderr


def test_the_extras_that_it_takes_and_brings_are_those_of_the_package(machine: FakeMachine) -> None:
    offered = machine.run("--with", "?").stderr.splitlines()[0].partition("There are: ")[2].split()
    text = (CHECKOUT / "pyproject.toml").read_text()
    extras = dict(re.findall(r"^(\w+) = (\[.*\])$", text, re.MULTILINE))
    assert set(offered) < set(extras)
    steps = (CHECKOUT / "edge/install/steps.sh").read_text()
    assert f"PYCUDA={extras['cuda'][1:-1]}" in steps


@pytest.mark.parametrize("command", COMMANDS)
def test_a_dry_run_changes_nothing(machine: FakeMachine, command: list[str]) -> None:
    machine.program(machine.bin / "apt-get", "exit 1")
    before = sorted(machine.checkout.rglob("*"))
    done = machine.run(*command, "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(machine.checkout.rglob("*")) == before
    assert machine.log == []


def test_an_older_python_gets_the_runtime_and_is_told_so(machine: FakeMachine) -> None:
    machine.python("3.10", machine.bin / "python3")
    done = machine.run("--dry-run")
    assert done.returncode == 0
    assert "It runs packages that were built on a PC" in done.stdout
    assert "[build]" not in done.stdout
    for command in ("demo", "test"):
        said = refused(machine, command)  # before anything is installed
        assert said.endswith("needs Python 3.11 or newer (ONNX with opset 24); found only 3.10. Set PYTHON")


def test_the_demo_on_a_board_that_cannot_build_says_where_it_can(machine: FakeMachine) -> None:
    machine.jetpack_6()
    said = refused(machine, "demo")
    assert said.endswith("JetPack's Python is 3.10. Run it on a PC: the package that it builds runs here too")


@pytest.mark.parametrize(
    ("version", "reason"),
    [("3.9", "is Python 3.9. Supported: 3.10 3.11 3.12 3.13"), ("3.14", "is Python 3.14. Supported:"), ("", "does not run")],
)
def test_a_python_that_cannot_be_used_is_refused(machine: FakeMachine, version: str, reason: str) -> None:
    python = machine.python(version, machine.state / "python") if version else machine.state / "gone"
    assert reason in refused(machine, PYTHON=str(python))


@pytest.mark.parametrize(("version", "said"), [("3.8", "3.8"), ("", "not there")])
def test_no_python_that_will_do_is_one_line(machine: FakeMachine, version: str, said: str) -> None:
    """As on JetPack 5, whose Python is 3.8."""
    machine.jetson("35.4.1")
    (machine.bin / "python3").unlink()
    if version:
        machine.python(version, machine.bin / "python3")
    assert refused(machine) == (
        f"no Python of 3.10 3.11 3.12 3.13 found (python3 is {said}). Install one with its headers and venv, "
        "or set PYTHON to its path"
    )


@pytest.mark.parametrize(
    ("version_line", "version", "reason"),
    [
        ("g++ (Ubuntu 9.4.0)", "9.4.0", "is g++ 9; the native core needs g++ 11 or newer. Set CXX"),
        ("Ubuntu clang version 13.0.0", "13.0.0", "is clang 13; the native core needs clang 14 or g++ 11. Set CXX"),
    ],
)
def test_an_old_compiler_is_named_with_what_is_needed(
    machine: FakeMachine, version_line: str, version: str, reason: str
) -> None:
    compiler = machine.program(machine.state / "cxx", f'[ "$1" = --version ] && echo "{version_line}" || echo {version}')
    assert refused(machine, CXX=str(compiler)) == f"{compiler} {reason}"


def test_what_the_system_lacks_is_one_line_with_the_command(machine: FakeMachine) -> None:
    machine.system_python("3.12")
    (machine.bin / "c++").unlink()
    (machine.state / "include-3.12/Python.h").unlink()
    machine.break_("no-ensurepip")
    python = machine.bin / "python3"
    assert refused(machine) == (
        f"cannot compile here: no C++ compiler (c++); no Python.h in {machine.state}/include-3.12; "
        f"no module venv for {python}. Install: apt-get install g++ python3-dev python3-venv, "
        "or let ./install.sh --system do it"
    )


def test_a_python_beside_the_systems_own_has_packages_of_its_own(machine: FakeMachine) -> None:
    machine.system_python("3.10")
    machine.python("3.12", machine.bin / "python3.12")
    (machine.state / "include-3.12/Python.h").unlink()
    assert "Install: apt-get install python3.12-dev, or" in refused(machine)


def test_with_system_what_is_missing_is_installed_and_looked_at_again(machine: FakeMachine) -> None:
    (machine.bin / "c++").unlink()
    machine.program(
        machine.bin / "apt-get",
        f'echo "apt-get $*" >>{machine.state}/log; [ "$1" = update ] || cp {machine.state}/c++ {machine.bin}',
    )
    machine.program(machine.state / "c++", "echo 11")
    done = machine.run("--system")
    assert (done.returncode, done.stderr) == (0, "")
    assert machine.log[:2] == ["apt-get update -qq", "apt-get install -y -qq --no-install-recommends g++"]
    assert "Installed: " in done.stdout


def test_a_package_list_that_cannot_be_updated_is_no_end(machine: FakeMachine) -> None:
    """One broken repository of many is enough for apt-get's error."""
    (machine.bin / "c++").unlink()
    machine.program(machine.state / "c++", "echo 11")
    machine.program(
        machine.bin / "apt-get",
        f'[ "$1" != update ] || {{ echo "E: no Release file" >&2; exit 100; }}; cp {machine.state}/c++ {machine.bin}',
    )
    done = machine.run("--system")
    assert (done.returncode, done.stderr) == (0, "E: no Release file\n")
    assert (
        "    apt-get update failed, why stands above. Going on with the package lists that are here."
        in done.stdout.splitlines()
    )
    assert "Installed: " in done.stdout


def test_a_system_package_that_does_not_help_ends_in_the_same_line(machine: FakeMachine) -> None:
    (machine.bin / "c++").unlink()
    machine.program(machine.bin / "apt-get", "exit 0")
    assert "no C++ compiler (c++)" in refused(machine, "--system")


@pytest.mark.parametrize(
    ("apt", "root", "reason"),
    [
        (None, True, "--system needs apt-get. Install by hand: g++"),
        ("exit 0", False, "--system needs root, and there is no sudo. As root: apt-get install g++"),
        ('[ "$1" = update ]', True, "apt-get could not install g++: its reason stands above"),
    ],
)
def test_system_packages_that_cannot_be_installed_are_named(
    machine: FakeMachine, apt: str | None, root: bool, reason: str
) -> None:
    (machine.bin / "c++").unlink()
    if apt is not None:
        machine.program(machine.bin / "apt-get", apt)
    if not root:
        machine.program(machine.bin / "id", "echo 1000")
    assert refused(machine, "--system") == reason


def test_a_full_disk_is_said_before_anything_is_made(machine: FakeMachine) -> None:
    machine.free_megabytes(120)
    line = refused(machine)
    assert line.startswith(f"only 120 MB free in {machine.checkout}; this needs 700 MB there.")
    assert "this needs 1500 MB there" in refused(machine, "--with", "rtx")


def test_a_folder_that_cannot_be_written_is_refused(machine: FakeMachine) -> None:
    """Root may write everywhere: the script then runs as another user, on a copy that this one can read."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(machine.checkout.parent, folder, dirs_exist_ok=True, symlinks=True)
        copy = Path(folder) / machine.checkout.name
        for path in [Path(folder), *Path(folder).rglob("*")]:
            if not path.is_symlink():
                path.chmod(0o555)
        try:
            here = FakeMachine.__new__(FakeMachine)
            here.root, here.bin, here.state, here.checkout = machine.root, Path(folder) / "bin", machine.state, copy
            done = here.run(user=65534, EDGE_INSTALL_ROOT=f"{folder}/root")
        finally:
            for path in [Path(folder), *Path(folder).rglob("*")]:
                if not path.is_symlink():
                    path.chmod(0o755)
    assert done.returncode == 1
    assert done.stderr == (
        f"install.sh: {copy} cannot be written to. Copy or clone it to a folder of yours, and run ./install.sh there\n"
    )


@pytest.mark.parametrize("command", [["--dry-run"], ["demo", "--dry-run"], ["--uninstall"]])
def test_an_environment_without_home_is_enough(machine: FakeMachine, command: list[str]) -> None:
    done = machine.run(*command, home=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_tests_need_the_folder_of_tests(machine: FakeMachine) -> None:
    shutil.rmtree(machine.checkout / "tests")
    assert refused(machine, "test") == "the tests are not in this copy. Run them from a checkout"


def test_a_copy_without_its_parts_says_so(machine: FakeMachine) -> None:
    shutil.rmtree(machine.checkout / "edge/install")
    assert refused(machine) == f"no folder edge/install in {machine.checkout}. Run it from a whole checkout"


def test_the_test_command_builds_for_cards_and_names_missing_tools(machine: FakeMachine) -> None:
    machine.program(machine.bin / "apt-get", "exit 1")
    machine.python("3.10", machine.bin / "python3.10")
    done = machine.run("test", "--system", "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    (apt,) = [line for line in done.stdout.splitlines() if "apt-get install" in line]
    assert apt.endswith(" g++-aarch64-linux-gnu qemu-user shellcheck clang-format")
    assert "--prefer-binary .[dev,rtx] cmake\n" in done.stdout
    assert "--prefer-binary .[test] numpy>=1.26,<2\n" in done.stdout  # Python 3.10, as on JetPack 6


def test_the_demo_proves_as_the_tier_says(machine: FakeMachine) -> None:
    done = machine.run("demo", "--dry-run")
    (build,) = [line for line in done.stdout.splitlines() if " build " in line and "would run" in line]
    assert "--verify-tokens" not in build


def test_a_wheel_for_a_board_is_cross_compiled_with_its_own_suffix_and_toolchain(machine: FakeMachine) -> None:
    machine.program(machine.bin / "aarch64-linux-gnu-g++", "exit 0")
    done = machine.run("wheel", "--arch", "aarch64", "--dry-run")
    assert done.returncode == 0, done.stderr
    (build,) = (line for line in done.stdout.splitlines() if " pip wheel " in line)
    assert "env.SETUPTOOLS_EXT_SUFFIX=.cpython-311-aarch64-linux-gnu.so" in build
    assert f"CMAKE_TOOLCHAIN_FILE={machine.checkout}/engines/native/aarch64.cmake" in build
    assert (CHECKOUT / "engines/native/aarch64.cmake").is_file()
