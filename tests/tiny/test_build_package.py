"""From a tiny model file to a package, and what must never be left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic import TinyModel

from edge.errors import BuildError, EdgeError, PackageError
from edge.package import Package

pytest.importorskip("edge._core", reason="needs the native core: pip install .")
pytest.importorskip("onnxruntime", reason="needs the build extra")

from engines.build import BuildReport, build_package
from engines.verify import verify_package

Gguf = Callable[[str | TinyModel], Path]
TOKENS = 200


def _build(model: Path, out: Path, tier: str = "int4", **more: bool) -> BuildReport:
    # Random weights give near-flat logits, so the verdicts' limits say little here; tests of the engine have their own.
    return build_package(model, model_name=str(model), tier=tier, target="cpu", out=out, verify_tokens=TOKENS, **more)


@pytest.fixture(scope="module")
def package(tiny_gguf: Gguf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built package; tests that change it copy it first."""
    out = tmp_path_factory.mktemp("built") / "tiny.edge"
    _build(tiny_gguf("llama_published"), out)
    return out


@pytest.mark.parametrize("variant", ["llama_untied", "gemma_published"])
@pytest.mark.parametrize("tier", ["fp16", "int8", "int4"])
def test_a_package_opens_and_verifies(tiny_gguf: Gguf, tmp_path: Path, variant: str, tier: str) -> None:
    out = tmp_path / "model.edge"
    report = _build(tiny_gguf(variant), out, tier)
    assert Package.open(out, force=True).manifest == report.manifest
    found = verify_package(out, reference=tiny_gguf(variant))
    assert found.reference is not None
    assert found.reference == report.manifest.verdicts
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.edge"]


def test_a_carried_model_has_a_perfect_tier_verdict(package: Path) -> None:
    verdict = Package.open(package, force=True).manifest.verdicts.tier
    assert verdict is not None
    assert (verdict.top1, verdict.perplexity_ratio) == (1.0, 1.0)
    assert abs(verdict.kl_mean) < 1e-6


def test_the_same_model_gives_the_same_files(package: Path, tiny_gguf: Gguf, tmp_path: Path) -> None:
    _build(tiny_gguf("llama_published"), tmp_path / "again.edge")
    first, second = (Package.open(p, force=True).manifest.files for p in (package, tmp_path / "again.edge"))
    assert {n: r.sha256 for n, r in first.items() if n.startswith(("engine/", "tokenizer/"))} == {
        n: r.sha256 for n, r in second.items() if n.startswith(("engine/", "tokenizer/"))
    }


def test_a_changed_byte_of_the_weights_fails_verification(package: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(package, tmp_path / "copy.edge"))
    with (copy / "engine" / "weights.bin").open("r+b") as file:
        file.seek(5000)
        byte = file.read(1)[0]
        file.seek(5000)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(PackageError, match=r"weights\.bin: SHA-256"):
        verify_package(copy)


def test_an_engine_that_computes_otherwise_fails_the_stored_check(package: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(package, tmp_path / "copy.edge"))
    plan = copy / "engine" / "plan.json"
    changed = (
        plan.read_text().replace('"activation": "silu"', '"activation": "gelu_tanh"').replace('"scale": 1.0', '"scale": 3.0')
    )
    assert changed != plan.read_text()
    plan.write_text(changed)
    manifest = json.loads((copy / "manifest.json").read_text())
    import hashlib

    manifest["files"]["engine/plan.json"] = {
        "bytes": plan.stat().st_size,
        "sha256": hashlib.sha256(plan.read_bytes()).hexdigest(),
    }
    (copy / "manifest.json").write_text(json.dumps(manifest))
    assert verify_package(package).stored.kl_mean < verify_package(copy).stored.kl_mean / 10


def test_another_model_as_reference_is_refused_with_both_hashes(package: Path, tiny_gguf: Gguf) -> None:
    with pytest.raises(PackageError, match="built from a file with SHA-256"):
        verify_package(package, reference=tiny_gguf("llama_untied"))


def test_a_package_is_replaced_only_when_asked(package: Path, tiny_gguf: Gguf, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(package, tmp_path / "copy.edge"))
    with pytest.raises(BuildError, match="--force"):
        _build(tiny_gguf("llama_untied"), copy)
    assert Package.open(copy, force=True).spec.tied_head
    _build(tiny_gguf("llama_untied"), copy, force=True)
    assert not Package.open(copy, force=True).spec.tied_head
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy.edge"]


def test_a_folder_that_is_no_package_is_never_replaced(tiny_gguf: Gguf, tmp_path: Path) -> None:
    out = tmp_path / "photos.edge"
    out.mkdir()
    (out / "holiday.jpg").write_text("sun")
    with pytest.raises(BuildError, match="not a package"):
        _build(tiny_gguf("llama"), out, force=True)
    assert (out / "holiday.jpg").read_text() == "sun"


@pytest.mark.parametrize(
    ("out", "reason"), [("nowhere/model.edge", "not a folder"), ("model", "ends in .edge")], ids=["no parent", "no suffix"]
)
def test_a_bad_place_is_refused_before_any_work(tiny_gguf: Gguf, tmp_path: Path, out: str, reason: str) -> None:
    with pytest.raises(BuildError, match=reason):
        _build(tiny_gguf("llama"), tmp_path / out)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("tier", "target"), [("int3", "cpu"), ("int4", "abacus")])
def test_an_unknown_tier_or_target_leaves_nothing(tiny_gguf: Gguf, tmp_path: Path, tier: str, target: str) -> None:
    with pytest.raises(EdgeError, match="int4" if target == "cpu" else "cpu"):
        build_package(tiny_gguf("llama"), model_name="m", tier=tier, target=target, out=tmp_path / "m.edge")
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
        build_package(
            tiny_gguf("llama_untied"),
            model_name="m",
            tier="int4",
            target="cpu",
            out=copy,
            verify_tokens=TOKENS,
            progress=_FailAt(task),
            force=True,
        )
    assert Package.open(copy, force=True).spec.tied_head
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy.edge"]


_KILLED = """
import os, sys, time
from pathlib import Path
from engines.build import build_package

class Stop:
    def start(self, task, total, unit):
        if task == "comparing with the reference":
            print("here", flush=True)
            time.sleep(60)
    def advance(self, n=1): pass
    def done(self): pass

model, out = map(Path, sys.argv[1:])
build_package(model, model_name="m", tier="int4", target="cpu", out=out, verify_tokens=200, progress=Stop())
"""


def test_a_killed_build_leaves_no_package_and_the_next_one_cleans_up(tiny_gguf: Gguf, tmp_path: Path) -> None:
    out = tmp_path / "model.edge"
    process = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(tiny_gguf("llama")), str(out)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    with pytest.raises(BuildError, match="another build"):
        _build(tiny_gguf("llama"), out)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not out.exists()
    _build(tiny_gguf("llama"), out)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.edge"]


@pytest.mark.skipif(os.geteuid() == 0, reason="needs a user other than root: root writes into read-only folders")
def test_a_read_only_folder_is_refused_in_one_line(tiny_gguf: Gguf, tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(BuildError, match="cannot be written"):
            _build(tiny_gguf("llama"), tmp_path / "model.edge")
    finally:
        tmp_path.chmod(0o755)


def test_a_full_disk_is_one_line_and_leaves_nothing(tiny_gguf: Gguf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import engines.cpu.weights

    def full(tensor: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(engines.cpu.weights, "pack", full)
    with pytest.raises(BuildError, match="No space left on device"):
        _build(tiny_gguf("llama"), tmp_path / "model.edge")
    assert not list(tmp_path.iterdir())


def test_a_package_runs_from_a_read_only_folder_with_spaces_and_accents(package: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(package, tmp_path / "Rifé und Söhne" / "mein modell.edge"))
    for path in copy.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    copy.chmod(0o555)
    started = time.time()
    found = verify_package(copy)
    assert found.files == len(Package.open(copy, force=True).manifest.files)
    assert all(path.stat().st_mtime < started for path in copy.rglob("*"))
