"""`edge build`: from a model file to a package. Owns: the order of a build. Needs: every stage. Never: what a stage does."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from calibration.tiers import load_tier
from edge import __version__, contract
from edge.errors import BuildError
from edge.executors.cpu_plan import PLAN_FILE, WEIGHTS_FILE, CpuPlan
from edge.hashes import file_sha256
from edge.manifest import (
    FILE_NAME,
    FORMAT_VERSION,
    REFERENCE_PROMPTS,
    Capabilities,
    FileRecord,
    Limits,
    Manifest,
    SourceRecord,
    TensorReport,
    from_json,
    to_json,
)
from edge.progress import Progress, SilentProgress
from engines.build_report import BuildReport
from engines.cpu.lower import lower
from engines.cpu.weights import write_weights
from engines.partial_package import partial_package
from engines.portable.export import write_portable
from engines.portable.metadata import ExportReport
from engines.portable.reader import read_portable
from engines.sizes import check_build_budget
from engines.sources.base import Source, open_source
from engines.sources.gguf_tokenizer import write_tokenizer
from engines.verdict import Measured, prove

TARGETS = ("cpu",)
MAX_STEP_TOKENS = 2048  # of one engine step; a runtime takes fewer and pays workspace for those only
MAX_SEQUENCES = 64


def build_package(
    model: Path,
    *,
    model_name: str,
    tier: str,
    target: str,
    out: Path,
    requantise: bool = False,
    verify_tokens: int | None = None,
    progress: Progress | None = None,
    force: bool = False,
    ignore_budget: bool = False,
) -> BuildReport:
    """Builds the package `out` from the model file `model`. Raises EdgeError; then nothing new stands at `out`.

    `model_name` is what the user calls the model, for the rebuild command in messages. A package that stands at `out` is
    replaced only with `force`. `verify_tokens` is the length of the text for the verdicts; by default the tier says it.
    """
    progress = progress or SilentProgress()
    if target not in TARGETS:
        raise BuildError(f"--target {target}: this version builds for: {', '.join(TARGETS)}. Use --target cpu")
    if out.exists() and not force:
        raise BuildError(f"{out}: stands there already. Replace it with --force, or choose another -o")
    recipe = load_tier(tier)
    source = open_source(model)
    window = min(recipe.verify.window, source.spec.context_length)
    if not ignore_budget:
        check_build_budget(source, recipe, requantise, model_name)
    with partial_package(Path(os.path.abspath(out))) as folder:
        (folder / "tokenizer").mkdir()
        write_tokenizer(source.metadata.tokenizer, folder / "tokenizer", str(model))
        _write_licence(source, folder)
        scratch = folder / "scratch"
        scratch.mkdir()
        report = write_portable(source, recipe, scratch / "tier.onnx", progress=progress, requantise=requantise)
        engine = write_engine(report.path, folder / "engine", progress)
        found = prove(folder, source, recipe, report, verify_tokens or recipe.verify.tokens, window, progress)
        _write_reference(found, folder)
        for path in sorted(scratch.iterdir()):
            path.unlink()
        scratch.rmdir()
        manifest = Manifest(
            format_version=FORMAT_VERSION,
            contract_version=contract.VERSION,
            spec=source.spec,
            tier=recipe.name,
            requantised=requantise,
            target=target,
            seal_tokens=contract.SEAL_TOKENS,
            limits=Limits(source.spec.context_length, MAX_STEP_TOKENS, MAX_SEQUENCES, contract.SEAL_TOKENS),
            capabilities=Capabilities(presets=("exact",), prefixes=False, batch_invariant=True),
            libraries=_libraries(),
            source=SourceRecord(model_name, file_sha256(model, progress), source.metadata.licence or "unknown"),
            files=_hash_files(folder, progress),
            bits_per_weight=report.bits_per_weight,
            tensors=_tensor_reports(report, engine),
            verdicts=found.verdicts(recipe),
            reference=found.prompts,
            engine=None,
        )
        text = to_json(manifest)
        assert from_json(text, FILE_NAME) == manifest, "a manifest must be read as it was written"
        (folder / FILE_NAME).write_text(text, encoding="utf-8")
    return BuildReport(out, manifest, model.stat().st_size)


def write_engine(portable: Path, folder: Path, progress: Progress) -> CpuPlan:
    """Lowers the portable ONNX for the cpu target into `folder`: plan.json and weights.bin."""
    model = read_portable(portable)
    steps, graph = lower(portable, model.spec)
    folder.mkdir()
    plan = CpuPlan(write_weights(model, steps, graph.constants, folder / WEIGHTS_FILE, progress), steps)
    (folder / PLAN_FILE).write_text(plan.to_json(), encoding="utf-8")
    return plan


def _tensor_reports(report: ExportReport, engine: CpuPlan) -> tuple[TensorReport, ...]:
    in_engine = {tensor.name: tensor for tensor in engine.tensors}
    return tuple(
        TensorReport(t.name, t.source_type, in_engine[t.name].kind, in_engine[t.name].bytes, t.rms_error, t.scale_error)
        for t in report.tensors
    )


def _libraries() -> dict[str, str]:
    from importlib.metadata import version

    return {"edge-zero": __version__, **{name: version(name) for name in ("numpy", "onnx", "onnxruntime", "gguf")}}


def _write_reference(found: Measured, folder: Path) -> None:
    path = folder / REFERENCE_PROMPTS
    path.parent.mkdir()
    np.savez(path, **found.stored)  # type: ignore[arg-type]  # its stub takes the keyword for allow_pickle


def _write_licence(source: Source, folder: Path) -> None:
    """What the model file says of its licence; the text itself is the publisher's to give."""
    lines = [f"Model: {source.metadata.name}", f"Licence: {source.metadata.licence or 'not named by the model file'}"]
    if source.metadata.licence_link:
        lines.append(source.metadata.licence_link)
    (folder / "NOTICE").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _hash_files(folder: Path, progress: Progress) -> dict[str, FileRecord]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): FileRecord(path.stat().st_size, file_sha256(path, progress)) for path in paths}
