"""What this version runs, on which machine, and that it says so before it reads an engine."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_packages import manifest_of, rtx_engine, rtx_files, write_rtx, write_unfinished

from edge import engine_library, machine
from edge.config import AUTO, InferenceConfig
from edge.engine_library import LibraryFound
from edge.errors import ExecutorError, PackageError, RequestError
from edge.gpu import GpuDevice, GpuFound
from edge.manifest import Manifest, from_json
from edge.opening import open_package
from edge.package import Package
from edge.runnable import check_asked, check_runs_here, choose_preset

A10 = machine.Machine(
    None, GpuFound("libcuda.so.1", "13.0", (GpuDevice("NVIDIA A10", "8.6", 24 << 30, integrated=False),)), "a10", True
)
REBUILD = "edge build tiny.gguf --tier int4 --target"


def manifest(change: Callable[[dict[str, Any]], Any] = lambda m: None) -> Manifest:
    """Of a package for an A10."""
    plain = manifest_of("a10", rtx_engine(), rtx_files())
    change(plain)
    return from_json(json.dumps(plain), "here")


def test_a_preset_that_the_engine_lacks_is_refused() -> None:
    with pytest.raises(RequestError) as caught:
        check_asked(manifest(), "a.edge", preset="tight", prefixes=False)
    assert str(caught.value) == "a.edge: the preset tight is asked for, its engine has: exact. Ask for one of these"


def test_prefixes_that_the_engine_lacks_are_refused() -> None:
    check_asked(manifest(lambda m: m["capabilities"].update(prefixes=True)), "a.edge", preset="exact", prefixes=True)
    with pytest.raises(RequestError, match=r"^a\.edge: was built by a version without baked prefixes\. Build it again"):
        check_asked(dataclasses.replace(manifest(), engine=None), "a.edge", preset="exact", prefixes=True)
    with pytest.raises(RequestError) as caught:
        check_asked(manifest(), "a.edge", preset="exact", prefixes=True)
    assert str(caught.value) == (
        f"a.edge: shared prefixes are asked for, its engine has none. Leave them out, or build for the CPU: {REBUILD} cpu"
    )


def test_a_package_that_fits_is_told_that_nothing_runs_it_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = Package.open(write_rtx(tmp_path / "a.edge"))
    monkeypatch.setattr(machine, "find_machine", lambda: A10)
    monkeypatch.setattr(engine_library, "find_library", lambda kind: LibraryFound(kind, "1.7.1.116", 13))
    with pytest.raises(ExecutorError) as caught:
        check_runs_here(package, "exact")
    assert str(caught.value) == (
        f"{package.path}: fits this machine, but this version of edge-zero has no executor for TensorRT-RTX yet. "
        f"What runs here: {REBUILD} cpu"
    )


def test_what_the_runtime_asks_is_checked_before_the_machine(tmp_path: Path) -> None:
    package = Package.open(write_unfinished(tmp_path / "a.edge", lambda m: m["capabilities"].update(presets=["tight"])))
    with pytest.raises(RequestError, match="the preset exact is asked for, its engine has: tight"):
        check_runs_here(package, "exact")
    with pytest.raises(RequestError, match="the default preset is safe, the engine has neither it nor a more exact one"):
        choose_preset(package, AUTO, InferenceConfig.load())
    assert choose_preset(package, "tight", InferenceConfig.load()) == "tight"


def test_a_runtime_refuses_what_does_not_run_here_before_it_reads_the_engine(tmp_path: Path) -> None:
    package = Package.open(write_unfinished(tmp_path / "a.edge"))
    with pytest.raises(PackageError, match="not finished: its device makes the plan"):
        open_package(package)
