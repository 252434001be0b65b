"""Packages of families with forms of their own, built by the command: biases, stacked tensors, long-rope by the context."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from edge_process import Edge
from family_models import FAMILIES, ORIGINAL, FolderSource, write_family_folder, write_family_gguf

from calibration.tiers import load_tier
from edge.package import Package

pytestmark = pytest.mark.build
pytest.importorskip("onnxruntime", reason="needs the build extra: onnxruntime (Python 3.11 or newer)")
pytest.importorskip("edge._core", reason="needs the native core: pip install .")


@pytest.fixture(scope="module")
def family_gguf(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Of float16, which the tier of that name carries: random weights lose best tokens to any rounding."""
    folder = tmp_path_factory.mktemp("families")
    return lambda name: write_family_gguf(name, folder / f"{name}.gguf", "F16")


def build(edge: Edge, gguf: Path, out: Path, *words: object) -> Package:
    # So many that one pair of nearly equal tokens does not fail the verdict.
    edge.succeed("build", gguf, "--tier", "fp16", "--verify-tokens", "256", "-o", out, *words)
    return Package.open(out, force=True)


def test_a_model_with_biases_is_built_verified_and_answers(
    edge: Edge, family_gguf: Callable[[str], Path], tmp_path: Path
) -> None:
    gguf = family_gguf("qwen2")
    package = build(edge, gguf, tmp_path / "qwen2.edge")
    report = {tensor.name: tensor for tensor in package.manifest.tensors}
    assert (report["layers.1.attn.k_proj.bias"].kind, report["layers.1.attn.k_proj.bias"].bytes) == ("fp32", 4 * 32)
    assert package.manifest.verdicts.engine is not None and package.manifest.verdicts.engine.kl_mean < 0.02
    edge.succeed("verify", package.path, "--reference", gguf)
    edge.succeed("run", package.path, "hello", "--max-tokens", "4")


def test_the_context_of_a_build_chooses_the_frequencies_of_long_rope(
    edge: Edge, family_gguf: Callable[[str], Path], tmp_path: Path
) -> None:
    gguf = family_gguf("phi3_partial")
    short = build(edge, gguf, tmp_path / "short.edge", "--ctx-size", ORIGINAL)
    long = build(edge, gguf, tmp_path / "long.edge")
    assert (short.spec.context_length, long.spec.context_length) == (ORIGINAL, 256)
    assert short.spec.ropes[0].divisors[-1] == pytest.approx(1.25) and long.spec.ropes[0].divisors[-1] == pytest.approx(4.5)
    assert short.manifest.build_command.endswith(f"--ctx-size {ORIGINAL}") and "--ctx-size" not in long.manifest.build_command
    # The reference is exported again with the frequencies of the package.
    for package in (short, long):
        edge.succeed("verify", package.path, "--reference", gguf)


@pytest.mark.parametrize("name", ["phi3", "gemma3"])
def test_a_folder_is_built_verified_and_answers(edge: Edge, tmp_path: Path, name: str) -> None:
    model = write_family_folder(name, tmp_path / name)
    package = build(edge, model, tmp_path / f"{name}.edge", "--ctx-size", 128)
    edge.succeed("verify", package.path, "--reference", model)
    edge.succeed("run", package.path, "hello", "--max-tokens", "4")


@pytest.mark.parametrize("name", FAMILIES)
def test_the_planned_weight_file_is_the_written_one(name: str, tmp_path: Path) -> None:
    from built_engine import build_engine_of

    from engines.sizes import planned_engine

    source = FolderSource(name)
    built = build_engine_of(source, "int4", tmp_path)
    planned = planned_engine(source, load_tier("int4"), False)
    written = (built.folder / "weights.bin").stat().st_size
    assert abs(planned.weight_bytes - written) < 4096  # the last tensor is not padded to a page
    assert len(planned.tensors) == len({tensor.name for tensor in planned.tensors})
