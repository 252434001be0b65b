"""install.sh, its steps: what stands is kept, what was cut short is made whole, what was made is taken back, and no more."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path

import pytest
from fake_machine import FakeMachine

CACHES = (".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis")  # what the tools of `test` leave


def install(machine: FakeMachine, *words: str, **changes: str) -> str:
    done = machine.run(*words, **changes)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def state_of(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_ino) for path in folder.rglob("*")}


def test_a_second_run_says_what_stands_and_changes_nothing(machine: FakeMachine) -> None:
    machine.jetpack_7()
    machine.jtop_service("7.2.1")
    assert "Installed: " in install(machine)
    made, before = machine.log, state_of(machine.checkout)
    assert len(made) == 4  # environment, package, pycuda, jetson-stats
    again = install(machine, CXX="no-compiler")  # nothing is compiled, so none is needed
    assert "==> edge-zero[build] is installed in .venv already, from these very sources" in again
    assert "==> pycuda is installed already, for CUDA 13.2" in again
    assert "==> jetson-stats is installed already, for version 7.2.1 of its service" in again
    assert machine.log == made
    assert state_of(machine.checkout) == before


def test_pycuda_is_compiled_with_the_nvcc_that_was_found(machine: FakeMachine) -> None:
    machine.jetpack_6()
    install(machine)
    cuda = machine.root / "usr/local/cuda"
    (line,) = [line for line in machine.log if "pycuda" in line]
    assert line.endswith(f" pycuda>=2024.1 CUDA_ROOT={cuda} PATH={cuda}/bin")
    assert not any("CUDA_ROOT" in line for line in machine.log if line.endswith(" . numpy>=1.26,<2"))


def test_changed_sources_are_installed_again_into_the_same_environment(machine: FakeMachine) -> None:
    install(machine)
    (machine.checkout / ".venv/kept").touch()
    (machine.checkout / "edge/new.py").touch()
    assert "Installed: " in install(machine)
    assert (machine.checkout / ".venv/kept").exists()
    assert len(machine.log) == 3


def test_changed_parts_of_the_script_itself_are_no_change_of_the_package(machine: FakeMachine) -> None:
    install(machine)
    words = machine.checkout / "edge/install/words.sh"
    words.write_text(words.read_text() + "\n")
    assert "already" in install(machine)


def test_extras_that_were_asked_for_once_stay(machine: FakeMachine) -> None:
    install(machine, "--with", "rtx")
    assert "==> edge-zero[build,rtx] is installed in .venv already" in install(machine)
    assert "==> edge-zero[build,rtx,server] into it" in install(machine, "--with", "server")
    assert machine.log[-1].endswith(" .[build,rtx,server]")
    assert "==> edge-zero[build,rtx,server] is installed in .venv already" in install(machine, "--with", "rtx")


def test_a_command_that_no_longer_runs_is_installed_again(machine: FakeMachine) -> None:
    """As in a checkout that was moved: the first line of the script names the old place."""
    install(machine)
    machine.program(machine.checkout / ".venv/bin/edge", "exit 127")
    assert "already" not in install(machine)
    assert "already" in install(machine)


def test_a_run_killed_while_the_environment_was_made_is_gone_over(machine: FakeMachine) -> None:
    machine.break_("signal-at-venv", "KILL")
    assert machine.run().returncode == -9
    (machine.checkout / ".venv/half").touch()
    assert "Installed: " in install(machine)
    assert not (machine.checkout / ".venv/half").exists()
    assert [line.split()[1] for line in machine.log if "venv" in line] == ["venv", "venv"]


def test_a_run_killed_while_pip_was_at_work_goes_on_from_there(machine: FakeMachine) -> None:
    machine.break_("signal-at-pip", "KILL")
    assert machine.run("--with", "rtx").returncode == -9
    (machine.checkout / ".venv/kept").touch()
    assert "==> edge-zero[build,rtx] into it" in install(machine)  # what was asked for is known
    assert (machine.checkout / ".venv/kept").exists()


def test_a_run_killed_while_newer_sources_were_installed_does_not_pass_for_the_older(machine: FakeMachine) -> None:
    install(machine)
    (machine.checkout / "edge/new.py").touch()
    machine.break_("signal-at-pip", "KILL")
    assert machine.run().returncode == -9
    (machine.checkout / "edge/new.py").unlink()
    assert "already" not in install(machine)


def test_a_removal_that_was_cut_short_is_still_known_as_ours(machine: FakeMachine) -> None:
    install(machine)
    machine.program(machine.bin / "rm", f'[ "$1" = -f ] || kill -9 $PPID; exec {shutil.which("rm")} "$@"')
    machine.run("--uninstall")
    assert (machine.checkout / ".venv/.edge-install").exists()
    machine.program(machine.bin / "rm", f'exec {shutil.which("rm")} "$@"')
    install(machine, "--uninstall")
    assert not (machine.checkout / ".venv").exists()


@pytest.mark.parametrize("flaw", ["no pip", "another Python", "another form", "gone"])
def test_an_environment_that_cannot_be_used_is_made_anew(machine: FakeMachine, flaw: str) -> None:
    install(machine)
    (machine.checkout / ".venv/old").touch()
    inner = machine.checkout / ".venv/bin/python"
    if flaw == "no pip":
        inner.write_text(inner.read_text().replace('"-m pip --version") ;;', '"-m pip --version") exit 1 ;;'))
        (machine.checkout / ".venv/bin/edge").unlink()
    elif flaw == "another Python":
        machine.python("3.12", machine.bin / "python3")
    elif flaw == "another form":  # TensorRT was installed since
        machine.card()
        machine.system_python("3.12")
        machine.tensorrt("10.16.1", "3.12")
    else:  # the Python that it was made of was removed
        inner.unlink()
        inner.symlink_to("/nowhere/python3.11")
        (machine.checkout / ".venv/bin/edge").unlink()
    install(machine)
    assert not (machine.checkout / ".venv/old").exists()
    assert (machine.checkout / ".venv/bin/edge").exists()


def test_an_environment_of_somebody_else_is_left_alone(machine: FakeMachine) -> None:
    (machine.checkout / ".venv/bin").mkdir(parents=True)
    done = machine.run()
    assert done.returncode == 1
    assert done.stderr == (
        f"install.sh: {machine.checkout}/.venv is not an environment that this script made. Move it away, then run this again\n"
    )
    assert "    .venv stays: this script did not make it." in install(machine, "--uninstall")
    assert (machine.checkout / ".venv/bin").exists()


@pytest.mark.parametrize(("name", "words"), [(".venv", []), (".venv-test", ["test"])])
def test_a_link_to_nowhere_is_an_environment_of_somebody_else(machine: FakeMachine, name: str, words: list[str]) -> None:
    (machine.checkout / name).symlink_to("gone")
    done = machine.run(*words)
    assert done.returncode == 1
    assert done.stderr.startswith(f"install.sh: {machine.checkout}/{name} is not an environment that this script made. ")
    assert f"    {name} stays: this script did not make it." in install(machine, "--uninstall")
    assert (machine.checkout / name).is_symlink()


@pytest.mark.parametrize("name", [".venv-test", ".venv-test-3.12"])
def test_the_tests_leave_an_environment_of_somebody_else_alone(machine: FakeMachine, name: str) -> None:
    mine = machine.checkout / name / "mine"
    mine.mkdir(parents=True)
    done = machine.run("test")
    assert done.returncode == 1
    assert done.stderr.endswith(f"/{name} is not an environment that this script made. Move it away, then run this again\n")
    assert mine.exists()
    assert machine.log == []


def test_an_environment_of_an_earlier_version_of_the_script_is_replaced(machine: FakeMachine) -> None:
    (machine.checkout / ".venv").mkdir()
    (machine.checkout / ".venv/edge-installed-from").touch()
    install(machine)
    assert not (machine.checkout / ".venv/edge-installed-from").exists()


def test_a_pip_that_fails_ends_in_one_line_of_ours(machine: FakeMachine) -> None:
    machine.break_("broken-.[build]")
    done = machine.run()
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "ERROR: no network",
        "install.sh: pip could not install .[build] into .venv: its reason stands above. Mend that, then run this again; "
        "it goes on from here",
    ]
    assert "Installed: " not in done.stdout
    machine.mend("broken-.[build]")
    assert "Installed: " in install(machine)


@pytest.mark.parametrize("name", ["pycuda", "jetson-stats"])
def test_what_is_optional_never_fails_the_installation(machine: FakeMachine, name: str) -> None:
    machine.jetpack_6()
    machine.break_(f"broken-{name}")
    log = machine.checkout / f".venv/.edge-install/{name}.log"
    said = install(machine)
    assert f"    pip could not install {name}; the rest works without it. Why: {log}. The next run tries again." in said
    assert log.read_text() == "ERROR: no network\n"
    machine.mend(f"broken-{name}")
    assert f"could not install {name}" not in install(machine)
    assert not log.exists()
    assert f"{name} is installed already" in install(machine)


def test_two_runs_at_once_are_one_too_many(machine: FakeMachine) -> None:
    with (machine.checkout / "install.sh").open() as script:
        fcntl.flock(script, fcntl.LOCK_EX)
        done = machine.run()
        assert done.returncode == 1
        assert done.stderr == f"install.sh: another ./install.sh is at work in {machine.checkout}. Wait for it to end\n"
        assert machine.run("--dry-run").returncode == 0
    assert "Installed: " in install(machine)


@pytest.mark.parametrize("signal", ["INT", "TERM", "HUP"])
def test_a_stop_says_that_it_can_go_on(machine: FakeMachine, signal: str) -> None:
    machine.break_("signal-at-venv", signal)
    done = machine.run()
    assert done.returncode == 130
    assert done.stderr == "install.sh: stopped. What is done stays; run it again to go on\n"
    assert "Installed: " in install(machine)


def test_uninstall_removes_what_was_made_and_keeps_the_rest(machine: FakeMachine, tmp_path: Path) -> None:
    before = set(machine.checkout.rglob("*"))
    install(machine)
    marked = (".venv-test/.edge-install", ".venv-test-3.12/.edge-install")
    for name in (*marked, "build/reports", "build/native", "build/cp311-abi3-linux_x86_64", "build/test-cp310", *CACHES):
        (machine.checkout / name).mkdir(parents=True)
    (machine.checkout / "edge/__pycache__").mkdir()
    (machine.checkout / ".venv-test-3.12/bin").mkdir()
    copied = ".venv-testing-mine/.edge-install"  # the mark of a copy under a name of one's own
    kept = {machine.checkout / name for name in ("smollm2.edge", "build/mine", ".venv-test-3.13", copied)}
    for path in kept:
        path.mkdir(parents=True, exist_ok=True)
    kept |= {path.parent for path in kept} - {machine.checkout}
    cache = tmp_path / "cache"
    cache.mkdir()
    said = install(machine, "--uninstall", EDGE_CACHE=str(cache))
    assert set(machine.checkout.rglob("*")) == before | kept
    assert "    .venv\n" in said
    assert "    .venv-test-3.13 stays: this script did not make it.\n" in said
    assert f"rm -r '{cache}'" in said
    assert cache.exists()
