"""`edge verify --reference` of a package for a board: what is lowered again, and what that takes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from built_package import build_tiny
from synthetic import TinyModel

import engines.tensorrt.backend
import engines.verdict
import engines.verify_reference
from edge.errors import PackageError
from engines.tensorrt.int8_inputs import Int8Inputs
from engines.verify import verify_package
from engines.verify_device import DeviceReport

pytestmark = pytest.mark.build
pytest.importorskip("edge._core", reason="needs the native core: pip install .")
pytest.importorskip("onnxruntime", reason="needs the build extra: onnxruntime")

Gguf = Callable[[str | TinyModel], Path]


def test_graphs_whose_scales_were_observed_are_named_as_not_compared(
    tiny_gguf: Gguf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines.tensorrt.backend, "measure_int8_inputs", lambda *words: Int8Inputs(0.001, 0.99, 1.0, True))
    build_tiny(tiny_gguf("llama"), tmp_path / "m.edge", "int8", target="orin-nx-16", context=64)
    report = verify_package(tmp_path / "m.edge", reference=tiny_gguf("llama"))
    assert isinstance(report, DeviceReport) and report.again is not None
    assert report.again.differing == ()
    assert report.again.not_compared == (
        "the graph for tensorrt 10.3 with int8 activations",
        "the graph for tensorrt 10.15 with int8 activations",
    )
    assert "with int8 activations: not compared, since their scales were observed" in report.text()


def test_a_disk_without_room_for_all_that_is_written_is_refused_first(
    tiny_gguf: Gguf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, package, written = tiny_gguf("gemma_published"), tmp_path / "m.edge", 0
    build_tiny(model, package, target="orin-nx-16", context=64)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    prove = engines.verdict.prove

    def watched(*words: Any, **more: Any) -> Any:
        nonlocal written
        found = prove(*words, **more)
        written = sum(path.stat().st_size for path in scratch.rglob("*") if path.is_file())
        return found

    with monkeypatch.context() as patch:
        patch.setattr(engines.verdict, "prove", watched)
        verify_package(package, reference=model)
    assert written > 3 * model.stat().st_size and not list(scratch.iterdir())
    monkeypatch.setattr(engines.verify_reference.shutil, "disk_usage", lambda _: SimpleNamespace(free=written - 1))
    with pytest.raises(PackageError, match=r"MB free, the reference takes .* MB there\. Free some, or set TMPDIR"):
        verify_package(package, reference=model)
    assert not list(scratch.iterdir())
