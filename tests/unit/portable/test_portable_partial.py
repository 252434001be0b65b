"""An export appears whole under its name or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from edge.errors import BuildError
from engines.portable.partial import partial_export

ROOT = Path(__file__).parents[3]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write_old(out: Path) -> None:
    out.write_text("old graph")
    out.with_name(f"{out.name}.data").write_text("old data")


def export(out: Path, body: Callable[[], None] = lambda: None) -> None:
    with partial_export(out, 1000) as partial:
        partial.graph.write_text("new graph")
        body()


def test_both_files_get_their_names_at_the_end(tmp_path: Path) -> None:
    out = tmp_path / "m.onnx"
    with partial_export(out, 1000) as partial:
        partial.graph.write_text("new graph")
        assert partial.data.stat().st_size == 1000
        assert not out.exists()
    assert names(tmp_path) == ["m.onnx", "m.onnx.data"]
    assert out.read_text() == "new graph"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_what_leaves_early_leaves_nothing_and_keeps_the_old_pair(tmp_path: Path, error: type[BaseException]) -> None:
    out = tmp_path / "m.onnx"
    write_old(out)

    def fail() -> None:
        raise error

    with pytest.raises(error):
        export(out, fail)
    assert names(tmp_path) == ["m.onnx", "m.onnx.data"]
    assert out.read_text() == "old graph"
    assert (tmp_path / "m.onnx.data").read_text() == "old data"


def test_an_old_export_is_replaced(tmp_path: Path) -> None:
    write_old(tmp_path / "m.onnx")
    export(tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_text() == "new graph"
    assert (tmp_path / "m.onnx.data").stat().st_size == 1000
    assert names(tmp_path) == ["m.onnx", "m.onnx.data"]


def test_too_little_room_is_said_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000_000_000))
    with (
        pytest.raises(BuildError, match=r"needs 4\.02 GB, the disk has 1\.00 GB free"),
        partial_export(tmp_path / "m.onnx", 4 * 10**9),
    ):
        pass
    assert names(tmp_path) == []


def test_a_disk_that_fills_up_meanwhile_is_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(BuildError, match=r"cannot be written.*No space left"), partial_export(tmp_path / "m.onnx", 1000):
        pass
    assert names(tmp_path) == []


def test_a_file_size_limit_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    code = f"""
import resource, sys
from pathlib import Path
from edge.errors import BuildError
from engines.portable.partial import partial_export
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    with partial_export(Path({str(tmp_path / "m.onnx")!r}), 1 << 22):
        pass
except BuildError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "m.onnx: cannot be written (File too large)" in ran.stdout
    assert names(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="needs a user who is not root: root writes to read-only folders")
def test_a_read_only_folder_is_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(BuildError, match=r"cannot be written.*Permission denied"), partial_export(tmp_path / "m.onnx", 1000):
        pass


def test_a_read_only_file_system_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "open", refuse)
    with (
        pytest.raises(BuildError, match=r"cannot be written.*Read-only file system"),
        partial_export(tmp_path / "m.onnx", 1000),
    ):
        pass


def test_a_missing_folder_and_a_folder_as_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="is not a folder"), partial_export(tmp_path / "none" / "m.onnx", 1):
        pass
    with pytest.raises(BuildError, match="is a folder"), partial_export(tmp_path, 1):
        pass
    assert names(tmp_path) == []


def test_two_exports_of_one_name_do_not_mix(tmp_path: Path) -> None:
    out = tmp_path / "m.onnx"
    with partial_export(out, 1000) as partial:
        with pytest.raises(BuildError, match="another export is writing it"), partial_export(out, 10):
            pass
        assert partial.data.stat().st_size == 1000
        partial.graph.write_text("first")
    assert out.read_text() == "first"


def test_what_a_killed_export_left_is_taken_over(tmp_path: Path) -> None:
    code = f"""
import os, signal
from pathlib import Path
from engines.portable.partial import partial_export
with partial_export(Path({str(tmp_path / "m.onnx")!r}), 1 << 20) as partial:
    partial.graph.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True)
    assert ran.returncode == -9
    assert names(tmp_path) == [".m.onnx.data.partial", ".m.onnx.partial"]
    export(tmp_path / "m.onnx")
    assert names(tmp_path) == ["m.onnx", "m.onnx.data"]
    assert (tmp_path / "m.onnx.data").read_bytes() == bytes(1000)
