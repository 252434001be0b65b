"""The proof in a package, repeated, and what it must find."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic import VARIANTS, TinyModel

from edge.errors import PackageError
from edge.package import Package

pytest.importorskip("edge._core", reason="needs the native core: pip install .")
pytest.importorskip("onnxruntime", reason="needs the build extra")

from built_package import build_tiny

from engines.verify import verify_package

Gguf = Callable[[str | TinyModel], Path]


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


@pytest.mark.parametrize("variant", ["llama_untied", "gemma_published"])
@pytest.mark.parametrize("tier", ["fp16", "int8", "int4"])
def test_a_package_opens_and_verifies(tiny_gguf: Gguf, tmp_path: Path, variant: str, tier: str) -> None:
    out = tmp_path / "model.edge"
    report = build_tiny(tiny_gguf(variant), out, tier)
    assert Package.open(out, force=True).manifest == report.manifest
    found = verify_package(out, reference=tiny_gguf(variant))
    assert found.reference == found.built == report.manifest.verdicts
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.edge"]


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
    report = build_tiny(model, tmp_path / "model.edge")
    assert report.manifest.verdicts.engine is not None and report.manifest.verdicts.engine.windows > 2
    assert verify_package(tmp_path / "model.edge", reference=model).reference == report.manifest.verdicts


def test_another_model_as_reference_is_refused_with_both_hashes(package: Path, tiny_gguf: Gguf) -> None:
    with pytest.raises(PackageError, match="built from a model with SHA-256"):
        verify_package(package, reference=tiny_gguf("llama_untied"))


def test_a_package_runs_from_a_read_only_folder_with_spaces_and_accents(package: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(package, tmp_path / "Rifé und Söhne" / "mein modell.edge"))
    for path in copy.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    copy.chmod(0o555)
    started = time.time()
    found = verify_package(copy)
    assert found.files == len(Package.open(copy, force=True).manifest.files)
    assert all(path.stat().st_mtime < started for path in copy.rglob("*"))
