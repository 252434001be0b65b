"""From a tiny model file to a package, and what must never be left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import TinyModel

from edge.errors import BudgetError, BuildError, ConfigError, EdgeError
from edge.package import Package

pytest.importorskip("edge._core", reason="needs the native core: pip install .")
pytest.importorskip("onnxruntime", reason="needs the build extra")

from built_package import build_tiny

from engines.partial_package import exchange

Gguf = Callable[[str | TinyModel], Path]


def test_a_carried_model_has_a_perfect_tier_verdict(package: Path) -> None:
    verdict = Package.open(package, force=True).manifest.verdicts.tier
    assert verdict is not None
    assert (verdict.top1, verdict.perplexity_ratio) == (1.0, 1.0)
    assert abs(verdict.kl_mean) < 1e-6


def test_the_same_model_gives_the_same_files(package: Path, tiny_gguf: Gguf, tmp_path: Path) -> None:
    build_tiny(tiny_gguf("llama_published"), tmp_path / "again.edge")
    first, second = (Package.open(p, force=True).manifest.files for p in (package, tmp_path / "again.edge"))
    assert {n: r.sha256 for n, r in first.items() if n.startswith(("engine/", "tokenizer/"))} == {
        n: r.sha256 for n, r in second.items() if n.startswith(("engine/", "tokenizer/"))
    }


def test_more_text_than_there_is_is_refused(tiny_gguf: Gguf, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--verify-tokens 9000000: the text has"):
        build_tiny(tiny_gguf("llama"), tmp_path / "m.edge", verify_tokens=9_000_000)
    assert not list(tmp_path.iterdir())


def test_a_build_over_the_memory_is_refused_before_any_work(
    tiny_gguf: Gguf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import engines.sizes
    from edge.monitors.memory import machine_memory

    monkeypatch.setattr(engines.sizes, "machine_memory", lambda: replace(machine_memory(), available=1 << 20))
    with pytest.raises(BudgetError, match="--ignore-budget"):
        build_tiny(tiny_gguf("llama"), tmp_path / "model.edge")
    assert not list(tmp_path.iterdir())
    build_tiny(tiny_gguf("llama"), tmp_path / "model.edge", ignore_budget=True)


def test_two_names_are_exchanged_in_one_step_where_the_system_can(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    (first / "mark").touch()
    if not exchange(first, second):
        pytest.skip("needs renameat2 and a file system that exchanges names")
    assert (second / "mark").exists() and not (first / "mark").exists()


def test_a_build_that_was_killed_between_its_renames_gives_the_old_package_back(
    package: Path, tiny_gguf: Gguf, tmp_path: Path
) -> None:
    shutil.copytree(package, tmp_path / ".model.edge.old")
    with pytest.raises(EdgeError):
        build_tiny(tiny_gguf("llama"), tmp_path / "model.edge", verify_tokens=9_000_000)
    assert Package.open(tmp_path / "model.edge").spec == Package.open(package).spec


def test_a_package_is_replaced_only_when_asked(package: Path, tiny_gguf: Gguf, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(package, tmp_path / "copy.edge"))
    with pytest.raises(BuildError, match="--force"):
        build_tiny(tiny_gguf("llama_untied"), copy)
    assert Package.open(copy, force=True).spec.tied_head
    build_tiny(tiny_gguf("llama_untied"), copy, force=True)
    assert not Package.open(copy, force=True).spec.tied_head
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy.edge"]


def test_a_folder_that_is_no_package_is_never_replaced(tiny_gguf: Gguf, tmp_path: Path) -> None:
    out = tmp_path / "photos.edge"
    out.mkdir()
    (out / "holiday.jpg").write_text("sun")
    with pytest.raises(BuildError, match="not a package"):
        build_tiny(tiny_gguf("llama"), out, force=True)
    assert (out / "holiday.jpg").read_text() == "sun"


@pytest.mark.parametrize(
    ("out", "reason"), [("nowhere/model.edge", "not a folder"), ("model", "ends in .edge")], ids=["no parent", "no suffix"]
)
def test_a_bad_place_is_refused_before_any_work(tiny_gguf: Gguf, tmp_path: Path, out: str, reason: str) -> None:
    with pytest.raises(BuildError, match=reason):
        build_tiny(tiny_gguf("llama"), tmp_path / out)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("tier", "target"), [("int3", "cpu"), ("int4", "abacus")])
def test_an_unknown_tier_or_target_leaves_nothing(tiny_gguf: Gguf, tmp_path: Path, tier: str, target: str) -> None:
    with pytest.raises(EdgeError, match="int4" if target == "cpu" else "cpu"):
        build_tiny(tiny_gguf("llama"), tmp_path / "m.edge", tier, target)
    assert not list(tmp_path.iterdir())


class _FailAt:
    """A progress that fails when a task begins."""

    def __init__(self, task: str) -> None:
        self.task = task

    def start(self, task: str, total: int, unit: str) -> None:
        if task == self.task:
            raise KeyboardInterrupt

    def advance(self, n: int = 1) -> None:
        pass

    def done(self) -> None:
        pass


@pytest.mark.parametrize("task", ["writing weights", "packing weights", "comparing with the reference", "hashing weights.bin"])
def test_an_interrupt_at_any_stage_leaves_the_old_package(package: Path, tiny_gguf: Gguf, tmp_path: Path, task: str) -> None:
    copy = Path(shutil.copytree(package, tmp_path / "copy.edge"))
    with pytest.raises(KeyboardInterrupt):
        build_tiny(tiny_gguf("llama_untied"), copy, progress=_FailAt(task), force=True)
    assert Package.open(copy, force=True).spec.tied_head
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy.edge"]


_KILLED = """
import os, sys, time
from pathlib import Path
from engines.build import BuildRequest, build_package

class Stop:
    def start(self, task, total, unit):
        if task == "comparing with the reference":
            print("here", flush=True)
            time.sleep(60)
    def advance(self, n=1): pass
    def done(self): pass

model, out = map(Path, sys.argv[1:])
build_package(BuildRequest(model, "m", "int4", "cpu", out, verify_tokens=200), Stop())
"""


def test_a_killed_build_leaves_no_package_and_the_next_one_cleans_up(tiny_gguf: Gguf, tmp_path: Path) -> None:
    out = tmp_path / "model.edge"
    process = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(tiny_gguf("llama")), str(out)], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    with pytest.raises(BuildError, match="another build"):
        build_tiny(tiny_gguf("llama"), out)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not out.exists()
    build_tiny(tiny_gguf("llama"), out)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.edge"]


@pytest.mark.skipif(os.geteuid() == 0, reason="needs a user other than root: root writes into read-only folders")
def test_a_read_only_folder_is_refused_in_one_line(tiny_gguf: Gguf, tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(BuildError, match="cannot be written"):
            build_tiny(tiny_gguf("llama"), tmp_path / "model.edge")
    finally:
        tmp_path.chmod(0o755)


def test_a_full_disk_is_one_line_and_leaves_nothing(tiny_gguf: Gguf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import engines.cpu.weights

    def full(tensor: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(engines.cpu.weights, "pack", full)
    with pytest.raises(BuildError, match="No space left on device"):
        build_tiny(tiny_gguf("llama"), tmp_path / "model.edge")
    assert not list(tmp_path.iterdir())
