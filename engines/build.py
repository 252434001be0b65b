"""`edge build`: from a model file to a package. Owns: the order of a build. Needs: every stage. Never: what a stage does."""

from __future__ import annotations

import math
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibration.tiers import Tier, load_tier
from edge import __version__, contract
from edge.devices import EngineKind, choose_engine, load_device
from edge.errors import BuildError, EdgeError
from edge.hashes import file_sha256
from edge.manifest import (
    FILE_NAME,
    FORMAT_VERSION,
    REFERENCE_PROMPTS,
    FileRecord,
    Manifest,
    SourceRecord,
    TensorReport,
    from_json,
    to_json,
)
from edge.package import Package
from edge.progress import Progress, SilentProgress
from engines.backend import Backend, BuilderUse, BuiltEngine, Stage
from engines.build_report import BuildReport
from engines.contexts import engine_context
from engines.cpu.backend import CPU
from engines.partial_package import partial_package
from engines.portable.export import write_portable
from engines.portable.metadata import ExportReport
from engines.preset_proof import TOKENS as PRESET_TOKENS
from engines.preset_proof import prove_presets
from engines.sizes import build_bytes, check_build_budget, check_build_room, planned_engine
from engines.sources.base import Source, open_source
from engines.sources.digest import source_sha256
from engines.sources.tokenizers import write_source_tokenizer
from engines.tensorrt.backend import TENSORRT, TENSORRT_RTX
from engines.verdict import Measured, prove

BACKENDS: dict[EngineKind, Backend] = {
    "cpu": CPU,
    "tensorrt": TENSORRT,
    "tensorrt-rtx": TENSORRT_RTX,
}


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """What `edge build MODEL` is asked for."""

    model: Path  # the file, or the folder
    model_name: str  # what the user calls it, for the rebuild command in messages
    tier: str
    target: str  # a device profile
    out: Path  # the package folder
    engine: EngineKind | None = None  # None: the first of the target's
    context: int | None = None  # of engines that fix it; None: the target's default
    requantise: bool = False
    verify_tokens: int | None = None  # text for the verdicts; None: the tier says it
    force: bool = False  # replace a package that stands there
    ignore_budget: bool = False


def build_package(request: BuildRequest, progress: Progress | None = None) -> BuildReport:
    """Builds the package `request.out`. Raises EdgeError; then nothing new stands there."""
    progress = progress or SilentProgress()
    kind = check_engine_kind(request.target, request.engine)
    if request.out.exists() and not request.force:
        raise BuildError(
            f"{request.out}: stands there already{_kind_of(request.out)}. Replace it with --force, or choose another -o"
        )
    recipe = load_tier(request.tier)
    defaults = load_device(request.target).defaults
    source = open_source(request.model, request.context or (defaults.context if defaults else None))
    context = engine_context(source.spec, request.context, defaults.context) if defaults else None
    engine = planned_engine(source, recipe, request.requantise)
    planned = build_bytes(engine, source.spec, kind, context)
    if not request.ignore_budget:
        check_build_budget(planned, request.model_name)
    with partial_package(Path(os.path.abspath(request.out))) as folder:
        check_build_room(request.out, engine.weight_bytes, kind)
        manifest, builder = _fill(folder, request, kind, source, recipe, context, progress)
        text = to_json(manifest)
        assert from_json(text, FILE_NAME) == manifest, "a manifest must be read as it was written"
        (folder / FILE_NAME).write_text(text, encoding="utf-8")
    source_bytes = sum(file.stat().st_size for file in source.metadata.files)
    return BuildReport(request.out, manifest, source_bytes, planned, builder)


def _kind_of(path: Path) -> str:
    """What a package is, in parentheses; nothing where it does not open."""
    try:
        manifest = Package.open(path, force=True).manifest
    except EdgeError:
        return ""
    return f" ({manifest.tier} for {manifest.target})"


def check_engine_kind(target: str, asked: EngineKind | None) -> EngineKind:
    """The kind of engine to build. EdgeError for an unknown target, a kind that it does not run, or one that lacks something
    here."""
    kind = choose_engine(target, asked)
    BACKENDS[kind].check()
    return kind


def _fill(
    folder: Path,
    request: BuildRequest,
    kind: EngineKind,
    source: Source,
    recipe: Tier,
    context: int | None,
    progress: Progress,
) -> tuple[Manifest, BuilderUse | None]:
    """All files of the package but the manifest, which is returned, with what a builder took."""
    (folder / "tokenizer").mkdir()
    write_source_tokenizer(source.metadata, folder / "tokenizer")
    _write_licence(source, folder)
    scratch = folder / "scratch"
    scratch.mkdir()
    exported = write_portable(source, recipe, scratch / "tier.onnx", progress=progress, requantise=request.requantise)
    stage = Stage(
        folder=folder,
        scratch=scratch,
        name=request.model_name,
        source=source,
        tier=recipe,
        requantise=request.requantise,
        exported=exported,
        target=request.target,
        context=context,
        ignore_budget=request.ignore_budget,
        progress=progress,
    )
    engine = BACKENDS[kind].build(stage)
    found = prove(
        folder / "tokenizer",
        source,
        recipe,
        exported,
        engine.open_tested,
        tokens=request.verify_tokens or recipe.verify.tokens,
        window=min(recipe.verify.window, engine.limits.max_context),
        progress=progress,
    )
    presets = {}
    if engine.role == "engine":
        tokens = min(PRESET_TOKENS, request.verify_tokens or PRESET_TOKENS)
        offered = engine.capabilities.presets
        presets = prove_presets(folder / "engine", source.spec, offered, folder / "tokenizer", tokens, progress)
    _write_reference(found, folder)
    shutil.rmtree(scratch)
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        contract_version=contract.VERSION,
        spec=source.spec,
        tier=recipe.name,
        requantised=request.requantise,
        target=request.target,
        context=request.context,
        seal_tokens=contract.SEAL_TOKENS,
        limits=engine.limits,
        capabilities=engine.capabilities,
        libraries=_libraries(engine),
        source=SourceRecord(request.model_name, source_sha256(source, progress), source.metadata.licence or "unknown"),
        files=_hash_files(folder, progress),
        bits_per_weight=exported.bits_per_weight,
        tensors=_tensor_reports(exported, engine),
        verdicts=found.verdicts(recipe, engine.role),
        preset_verdicts=presets,
        reference=found.prompts,
        engine=engine.record,
    )
    return manifest, engine.builder


def _tensor_reports(exported: ExportReport, engine: BuiltEngine) -> tuple[TensorReport, ...]:
    """Roundings of the tier and of the engine are independent, so their squares add."""
    reports = []
    for t in exported.tensors:
        weight = engine.weights[t.name]
        rounding = math.hypot(t.rms_error, weight.rounding_error)
        reports.append(TensorReport(t.name, t.source_type, weight.kind, weight.bytes, rounding, t.scale_error))
    return tuple(reports)


def _libraries(engine: BuiltEngine) -> dict[str, str]:
    from importlib.metadata import version

    names = ("numpy", "onnx", "onnxruntime", "gguf", *engine.libraries)
    return {"edge-zero": __version__, **{name: version(name) for name in names}}


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
