"""Whether a library is there is found by loading it, in a process of its own."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from builds import FAKE

from engines.tensorrt.library import LibraryMissing, need_library


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which Python looks for modules first."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def refusal() -> str:
    with pytest.raises(LibraryMissing) as caught:
        need_library("tensorrt")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_library_that_loads_has_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(FAKE))
    assert need_library("tensorrt") == "10.3.0"


def test_where_ci_installs_all_no_test_of_the_other_library_is_skipped(is_whole: bool) -> None:
    if not is_whole:
        pytest.skip("needs CI=true on x86-64 with the build extra")
    assert importlib.util.find_spec("tensorrt_rtx") is not None


def test_a_library_that_was_found_is_not_loaded_again(place: Path) -> None:
    count = place / "count"
    (place / "tensorrt.py").write_text(f"__version__ = '9.1'\nwith open({str(count)!r}, 'a') as file:\n    file.write('+')\n")
    assert [need_library("tensorrt"), need_library("tensorrt")] == ["9.1", "9.1"]
    assert count.read_text() == "+"


@pytest.mark.skipif(importlib.util.find_spec("tensorrt") is not None, reason="needs a Python without TensorRT")
def test_a_missing_library_is_told_with_the_way_to_get_it() -> None:
    assert "TensorRT is not installed for" in refusal() and "python3-libnvinfer" in refusal()


@pytest.mark.skipif(importlib.util.find_spec("tensorrt_rtx") is not None, reason="needs a Python without TensorRT-RTX")
def test_the_other_library_has_its_own_way() -> None:
    with pytest.raises(LibraryMissing, match=r"TensorRT-RTX is not installed .* pip install tensorrt-rtx-cu13"):
        need_library("tensorrt-rtx")


@pytest.mark.skipif(importlib.util.find_spec("tensorrt") is not None, reason="needs a Python without TensorRT")
def test_type_stubs_are_no_library(place: Path) -> None:
    (place / "tensorrt").mkdir()
    (place / "tensorrt/__init__.pyi").write_text("class Builder: ...")
    assert "is not installed" in refusal()


def test_a_library_without_its_shared_objects_is_told_with_the_reason(place: Path) -> None:
    (place / "tensorrt.py").write_text("raise ImportError('libnvinfer.so.10: cannot open\\nshared object file')")
    assert "does not load (libnvinfer.so.10: cannot open shared object file)" in refusal()


def test_a_library_that_lacks_another_module_is_not_taken_for_missing(place: Path) -> None:
    (place / "tensorrt.py").write_text("import a_module_that_nobody_has")
    assert "does not load (No module named 'a_module_that_nobody_has')" in refusal()


def test_a_library_that_crashes_when_loaded_does_not_take_us_along(place: Path) -> None:
    (place / "tensorrt.py").write_text("import os; os.abort()")
    assert "TensorRT ends the process that loads it (SIGABRT)" in refusal()


def test_what_a_library_prints_is_not_its_version(place: Path) -> None:
    (place / "tensorrt.py").write_text("__version__ = '9.1'\nimport os\nprint('hello', flush=True)\nos.write(1, b'from C\\n')")
    assert need_library("tensorrt") == "9.1"


def test_modules_in_the_current_folder_are_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("engines", "tensorrt"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('ran from the current folder')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(FAKE))
    assert need_library("tensorrt") == "10.3.0"
