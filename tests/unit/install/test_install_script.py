"""install.sh: what it says, refuses and plans, without installing anything."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "install.sh"


def run(*words: str, folder: Path | None = None, **changes: str) -> subprocess.CompletedProcess[str]:
    script = folder / "install.sh" if folder else SCRIPT
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **changes}
    return subprocess.run(
        ["bash", str(script), *words], capture_output=True, text=True, check=False, timeout=60, env=environment
    )


def fake_python(folder: Path, version: str, name: str = "python3") -> Path:
    """A program that answers what the script asks a Python, and nothing else."""
    path = folder / name
    path.write_text(f"#!/bin/sh\ncase $2 in *version_info*) echo {version};; *) echo {path};; esac\n")
    path.chmod(0o755)
    return path


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
    compiler = tmp_path / "old-c++"
    compiler.write_text("#!/bin/sh\necho 9.4.0\n")
    compiler.chmod(0o755)
    done = run("--dry-run", folder=checkout, PYTHON=str(fake_python(tmp_path, "3.11")), CXX=str(compiler))
    assert done.returncode == 1
    assert "is g++ 9; the native core needs g++ 11 or newer" in done.stderr


def test_uninstall_removes_what_was_made_and_keeps_the_rest(checkout: Path, tmp_path: Path) -> None:
    for name in (".venv/bin", ".venv-test", ".venv-test-3.12", "build/reports", "smollm2.edge"):
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
