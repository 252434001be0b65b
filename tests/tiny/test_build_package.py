"""From a tiny model file to a package, and what must never be left behind."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic import VARIANTS, TinyModel

from edge.errors import BudgetError, BuildError, ConfigError, EdgeError, PackageError
from edge.package import Package

pytest.importorskip("edge._core", reason="needs the native core: pip install .")
pytest.importorskip("onnxruntime", reason="needs the build extra")

from engines.build import BuildReport, build_package
from engines.partial_package import exchange
from engines.verify import verify_package

Gguf = Callable[[str | TinyModel], Path]
TOKENS = 200


def _build(model: Path, out: Path, tier: str = "int4", **more: bool) -> BuildReport:
    # Random weights give near-flat logits, so the verdicts' limits say little here; tests of the engine have their own.
    return build_package(model, model_name=str(model), tier=tier, target="cpu", out=out, verify_tokens=TOKENS, **more)


def _change_plan(package: Path, change: Callable[[str], str]) -> None:
    plan = package / "engine" / "plan.json"
    changed = change(plan.read_text())
    assert changed != plan.read_text()
    plan.write_text(changed)
    _rehash(package, "engine/plan.json")


def _rehash(package: Path, name: str) -> None:
    """Makes the manifest agree with a file that was changed, as somebody who means harm would."""
    manifest = json.loads((package / "manifest.json").read_text())
    data = (package / name).read_bytes()
    manifest["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (package / "manifest.json").write_text(json.dumps(manifest))


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
    assert found.reference == found.built == report.manifest.verdicts
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
    _change_plan(
        copy,
        lambda plan: plan.replace('"activation": "silu"', '"activation": "gelu_tanh"').replace('"scale": 1.0', '"scale": 3.0'),
    )
    good, bad = verify_package(package), verify_package(copy)
    assert good.stored.passed and good.passed
    assert not bad.stored.passed and not bad.passed


def test_layers_that_share_a_page_fail_verification(package: Path, tmp_path: Path) -> None:
    """What one prefill step cannot show: the fault lies in pages that a later step reads."""
    copy = Path(shutil.copytree(package, tmp_path / "copy.edge"))
    _change_plan(copy, lambda plan: plan.replace('"group_layer": 1', '"group_layer": 0'))
    with pytest.raises(PackageError, match="next slot"):
        verify_package(copy)


def test_loose_limits_in_a_manifest_do_not_help(package: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(package, tmp_path / "copy.edge"))
    _change_plan(copy, lambda plan: plan.replace('"scale": 1.0', '"scale": 3.0'))
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["verdicts"]["engine"]["limits"] = {"kl_mean": 1e5, "top1": 0.0, "perplexity_ratio": 1e9}
    (copy / "manifest.json").write_text(json.dumps(manifest))
    assert not verify_package(copy).passed


def test_a_failed_verdict_of_the_build_is_no_verified_package(package: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(package, tmp_path / "copy.edge"))
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["verdicts"]["tier"] |= {"kl_mean": 50.0, "passed": False}
    (copy / "manifest.json").write_text(json.dumps(manifest))
    found = verify_package(copy)
    assert found.stored.passed and not found.passed
    assert "the tier verdict of the build" in found.text()


@pytest.mark.parametrize("damage", ["text", "shape", "ids", "missing"])
def test_a_damaged_reference_is_one_line(package: Path, tmp_path: Path, damage: str) -> None:
    copy = Path(shutil.copytree(package, tmp_path / "copy.edge"))
    path = copy / "reference" / "logits.npz"
    with np.load(path) as loaded:
        arrays = dict(loaded)
    first = next(iter(arrays)).rsplit(".", 1)[0]
    if damage == "text":
        path.write_text("not an archive")
    else:
        if damage == "shape":
            arrays[f"{first}.logits"] = arrays[f"{first}.logits"][:, :3]
        elif damage == "ids":
            arrays[f"{first}.ids"][0, 0] = 10**6
        else:
            del arrays[f"{first}.log_sum_exp"]
        np.savez(path, **arrays)
    _rehash(copy, "reference/logits.npz")
    with pytest.raises(PackageError, match="is not a reference of this package"):
        verify_package(copy)


def test_verdicts_are_repeated_over_several_windows_with_a_first_token(tiny_gguf: Gguf, tmp_path: Path) -> None:
    """Gemma-like models put BOS in front of every window; the small context makes several."""
    model = tiny_gguf(replace(VARIANTS["gemma_published"], context=96))
    report = _build(model, tmp_path / "model.edge")
    assert report.manifest.verdicts.engine is not None and report.manifest.verdicts.engine.windows > 2
    assert verify_package(tmp_path / "model.edge", reference=model).reference == report.manifest.verdicts


def test_more_text_than_there_is_is_refused(tiny_gguf: Gguf, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--verify-tokens 9000000: the text has"):
        build_package(
            tiny_gguf("llama"), model_name="m", tier="int4", target="cpu", out=tmp_path / "m.edge", verify_tokens=9_000_000
        )
    assert not list(tmp_path.iterdir())


def test_a_build_over_the_memory_is_refused_before_any_work(
    tiny_gguf: Gguf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import engines.sizes
    from edge.monitors.memory import machine_memory

    monkeypatch.setattr(engines.sizes, "machine_memory", lambda: replace(machine_memory(), available=1 << 20))
    with pytest.raises(BudgetError, match="--ignore-budget"):
        _build(tiny_gguf("llama"), tmp_path / "model.edge")
    assert not list(tmp_path.iterdir())
    _build(tiny_gguf("llama"), tmp_path / "model.edge", ignore_budget=True)


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
        build_package(
            tiny_gguf("llama"), model_name="m", tier="int4", target="cpu", out=tmp_path / "model.edge", verify_tokens=9_000_000
        )
    assert Package.open(tmp_path / "model.edge").spec == Package.open(package).spec


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
        [sys.executable, "-c", _KILLED, str(tiny_gguf("llama")), str(out)], stdout=subprocess.PIPE, text=True, cwd=tmp_path
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
