"""install.sh: what it says, refuses and plans, without installing anything."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "install.sh"


CACHES = (".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis")  # what the tools of `test` leave
# Answers what the script asks a Python, and nothing else. Installing makes a command that says its version; a file `broken-pip`
# beside the first such Python makes pip fail.
PYTHON = """#!/bin/sh
case "$*" in
  *version_info*) echo {version} ;;
  *sysconfig*) echo {folder}/include ;;
  --version) echo Python {version}.1 ;;
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  "-m pip --version") ;;
  "-m pip install "*)
    if [ -e {folder}/broken-pip ]; then echo "ERROR: no network" >&2; exit 1; fi
    printf '#!/bin/sh\\necho edge 0\\n' >"${{0%python}}edge" && chmod +x "${{0%python}}edge" ;;
  *) echo "$0" ;;
esac
"""


def run(*words: str, folder: Path | None = None, home: bool = True, **changes: str) -> subprocess.CompletedProcess[str]:
    script = folder / "install.sh" if folder else SCRIPT
    environment = {"PATH": "/usr/bin:/bin", **({"HOME": "/nonexistent"} if home else {}), **changes}
    return subprocess.run(
        ["bash", str(script), *words], capture_output=True, text=True, check=False, timeout=60, env=environment
    )


def fake_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def fake_python(folder: Path, version: str, name: str = "python3") -> Path:
    (folder / "include").mkdir(exist_ok=True)
    (folder / "include/Python.h").touch()
    return fake_program(folder / name, PYTHON.format(version=version, folder=folder))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the script and the folders it reads, and nothing built."""
    folder = tmp_path / "with space"
    for name in ("edge", "engines/native", "calibration", "yaml"):
        (folder / name).mkdir(parents=True)
    (folder / "pyproject.toml").touch()
    shutil.copy(SCRIPT, folder)
    return folder


def test_help_goes_to_stdout_and_names_every_command() -> None:
    done = run("--help")
    assert done.returncode == 0
    for word in ("demo", "test", "--system", "--uninstall", "--dry-run", "PYTHON="):
        assert word in done.stdout


@pytest.mark.parametrize("words", [["install"], ["--nope"], ["demo", "extra"], ["--system"], ["demo", "--system"]])
def test_a_wrong_word_shows_the_usage_and_exits_with_two(words: list[str]) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Usage: ./install.sh" in done.stderr


@pytest.mark.parametrize("command", [[], ["demo"], ["test"], ["test", "--system"], ["--uninstall"]])
def test_a_dry_run_changes_nothing(checkout: Path, command: list[str], tmp_path: Path) -> None:
    before = sorted(checkout.rglob("*"))
    done = run(*command, "--dry-run", folder=checkout, PYTHON=str(fake_python(tmp_path, "3.11")))
    assert done.returncode == 0, done.stderr
    assert sorted(checkout.rglob("*")) == before


def test_an_older_python_gets_the_runtime_and_is_told_so(checkout: Path, tmp_path: Path) -> None:
    python = fake_python(tmp_path, "3.10")
    done = run("--dry-run", folder=checkout, PYTHON=str(python))
    assert done.returncode == 0
    assert "This one runs packages; exporting and building need 3.11" in done.stdout
    assert "[build]" not in done.stdout
    for command in ("demo", "test"):
        refused = run(command, "--dry-run", folder=checkout, PYTHON=str(python))
        assert refused.returncode == 1
        assert "needs Python 3.11 or newer" in refused.stderr


@pytest.mark.parametrize(
    ("version", "reason"), [("3.9", "is Python 3.9. Supported: 3.10 3.11 3.12 3.13"), ("", "does not run")]
)
def test_a_python_that_cannot_be_used_is_refused(checkout: Path, tmp_path: Path, version: str, reason: str) -> None:
    python = fake_python(tmp_path, version) if version else tmp_path / "gone"
    done = run("--dry-run", folder=checkout, PYTHON=str(python))
    assert done.returncode == 1
    assert reason in done.stderr


def test_an_old_compiler_is_named_with_what_is_needed(checkout: Path, tmp_path: Path) -> None:
    compiler = fake_program(tmp_path / "old-c++", "#!/bin/sh\necho 9.4.0\n")
    done = run("--dry-run", folder=checkout, PYTHON=str(fake_python(tmp_path, "3.11")), CXX=str(compiler))
    assert done.returncode == 1
    assert "is g++ 9; the native core needs g++ 11 or newer" in done.stderr


def test_missing_headers_are_named_with_the_packages_that_bring_them(checkout: Path, tmp_path: Path) -> None:
    python = fake_python(tmp_path, "3.11")
    (tmp_path / "include/Python.h").unlink()
    done = run("--dry-run", folder=checkout, PYTHON=str(python))
    assert done.returncode == 1
    assert f"no Python.h in {tmp_path}/include" in done.stderr
    assert "apt-get install g++ python3-dev python3-venv" in done.stderr


def test_an_installation_of_these_sources_is_not_made_again(checkout: Path, tmp_path: Path) -> None:
    python = str(fake_python(tmp_path, "3.11"))
    assert "Installed: " in run(folder=checkout, PYTHON=python).stdout
    again = run(folder=checkout, PYTHON=python, CXX="no-compiler")  # nothing is compiled, so none is needed
    assert (again.returncode, again.stderr) == (0, "")
    assert "installed in .venv already" in again.stdout
    (checkout / "edge/new.py").touch()
    assert "Installed: " in run(folder=checkout, PYTHON=python).stdout


def test_a_command_that_no_longer_runs_is_installed_again(checkout: Path, tmp_path: Path) -> None:
    """As in a checkout that was moved: the first line of the script names the old place."""
    python = str(fake_python(tmp_path, "3.11"))
    run(folder=checkout, PYTHON=python)
    edge = fake_program(checkout / ".venv/bin/edge", "#!/nowhere/.venv/bin/python\n")
    done = run(folder=checkout, PYTHON=python)
    assert (done.returncode, done.stderr) == (0, "")
    assert "already" not in done.stdout
    assert subprocess.run([edge, "--version"], capture_output=True, text=True, check=True).stdout == "edge 0\n"


def test_an_environment_of_the_same_python_with_pip_is_kept(checkout: Path, tmp_path: Path) -> None:
    python = fake_python(tmp_path, "3.11")
    fake_program(checkout / ".venv/bin/python", python.read_text())
    (checkout / ".venv/kept").touch()
    assert run(folder=checkout, PYTHON=str(python)).returncode == 0
    assert (checkout / ".venv/kept").exists()


@pytest.mark.parametrize("flaw", ["no pip", "another version", "gone"])
def test_an_environment_that_cannot_be_used_is_made_anew(checkout: Path, tmp_path: Path, flaw: str) -> None:
    python = fake_python(tmp_path, "3.11")
    text = python.read_text()
    if flaw == "no pip":
        text = text.replace('"-m pip --version") ;;', '"-m pip --version") exit 1 ;;')
    elif flaw == "another version":
        text = text.replace("echo 3.11", "echo 3.12")
    assert (text != python.read_text()) == (flaw != "gone")
    inner = fake_program(checkout / ".venv/bin/python", text)
    if flaw == "gone":  # the Python that it was made of was removed
        inner.unlink()
        inner.symlink_to("/nowhere/python3.11")
    (checkout / ".venv/old").touch()
    done = run(folder=checkout, PYTHON=str(python))
    assert (done.returncode, done.stderr) == (0, "")
    assert not (checkout / ".venv/old").exists()
    assert (checkout / ".venv/bin/edge").exists()


def test_a_pip_that_fails_ends_in_one_line_of_ours(checkout: Path, tmp_path: Path) -> None:
    python = str(fake_python(tmp_path, "3.11"))
    (tmp_path / "broken-pip").touch()
    done = run(folder=checkout, PYTHON=python)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("install.sh: pip could not install .[build] into .venv")
    assert "Installed: " not in done.stdout
    (tmp_path / "broken-pip").unlink()
    assert "Installed: " in run(folder=checkout, PYTHON=python).stdout


@pytest.mark.parametrize("command", [["--dry-run"], ["demo", "--dry-run"], ["--uninstall"]])
def test_an_environment_without_home_is_enough(checkout: Path, tmp_path: Path, command: list[str]) -> None:
    done = run(*command, folder=checkout, home=False, PYTHON="", PATH=f"{fake_python(tmp_path, '3.11').parent}:/usr/bin:/bin")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_dry_run_names_the_system_packages_that_are_missing(checkout: Path, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "cat", "cut", "dirname", "env", "find", "grep", "id", "sh", "sort", "uname"):
        found = shutil.which(name)
        assert found, name
        (tools / name).symlink_to(found)
    fake_program(tools / "apt-get", "#!/bin/sh\nexit 1\n")
    fake_program(tools / "c++", "#!/bin/sh\necho 13\n")
    python = fake_python(tmp_path, "3.11")
    done = run("test", "--system", "--dry-run", folder=checkout, PATH=str(tools), PYTHON=str(python))
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = [line for line in done.stdout.splitlines() if "apt-get install" in line]
    assert line.endswith(" g++-aarch64-linux-gnu qemu-user shellcheck clang-format")


def test_the_demo_proves_as_the_tier_says(checkout: Path, tmp_path: Path) -> None:
    done = run("demo", "--dry-run", folder=checkout, PYTHON=str(fake_python(tmp_path, "3.11")))
    (build,) = [line for line in done.stdout.splitlines() if " build " in line and "would run" in line]
    assert "--verify-tokens" not in build


def test_uninstall_removes_what_was_made_and_keeps_the_rest(checkout: Path, tmp_path: Path) -> None:
    for name in (".venv/bin", ".venv-test", ".venv-test-3.12", "build/reports", *CACHES, "smollm2.edge"):
        (checkout / name).mkdir(parents=True)
    cache = tmp_path / "cache"
    cache.mkdir()
    done = run("--uninstall", folder=checkout, EDGE_CACHE=str(cache))
    assert done.returncode == 0
    assert {path.name for path in checkout.iterdir()} == {
        "edge", "engines", "calibration", "yaml", "pyproject.toml", "install.sh", "smollm2.edge",
    }  # fmt: skip
    assert f"rm -r '{cache}'" in done.stdout
    assert cache.exists()
