"""A base install: what needs the build extra says so in one line, and the rest works."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from edge.cli.build_extra import BUILD_LIBRARIES, missing_libraries


def run_without(libraries: tuple[str, ...], words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """`edge WORDS` in a Python that lacks `libraries`."""
    code = f"import sys\nfor name in {libraries!r}: sys.modules[name] = None\nfrom edge.cli.main import main\nmain({words!r})"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60, cwd=folder)


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "smollm2-135m-instruct"],
        ["build", "smollm2-135m-instruct"],
        ["export", "smollm2-135m-instruct"],
        ["verify", "a.edge", "--reference", "smollm2-135m-instruct"],
    ],
)
@pytest.mark.parametrize("libraries", [BUILD_LIBRARIES, ("onnxruntime",)])
def test_a_command_that_builds_names_the_extra(words: list[str], libraries: tuple[str, ...], tmp_path: Path) -> None:
    done = run_without(libraries, words, tmp_path)
    # Where the extra is not installed at all, the others are missing as well.
    missing = [name for name in BUILD_LIBRARIES if name in libraries or find_spec(name) is None]
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"edge: edge {words[0]}")
    assert f"needs {', '.join(missing)}: ./install.sh (Python 3.11 or newer)\n" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_package_is_looked_at_without_the_extra(tmp_path: Path) -> None:
    for words in (["plan", "a.edge"], ["inspect", "a.edge"], ["verify", "a.edge"]):
        (tmp_path / "a.edge").mkdir(exist_ok=True)
        done = run_without(BUILD_LIBRARIES, words, tmp_path)
        assert "no manifest.json in it" in done.stderr, words


def test_doctor_names_every_library_and_command_that_lacks_one(tmp_path: Path) -> None:
    done = run_without(BUILD_LIBRARIES, ["doctor"], tmp_path)
    assert done.returncode == 0, done.stderr
    for words in ("edge export", "edge build", "edge plan", "edge verify --reference", *BUILD_LIBRARIES):
        assert words in done.stdout


def test_what_is_there_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in BUILD_LIBRARIES:
        monkeypatch.setitem(sys.modules, name, sys)  # any module, as if it were this one
    assert missing_libraries() == ()
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert missing_libraries() == ("onnx",)
