"""`edge verify`: the proof in a package, repeated. Owns: the order of the checks. Needs: package, teacher. Never: writes."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edge.comparison import Comparison
from edge.errors import PackageError
from edge.hashes import file_sha256
from edge.manifest import REFERENCE_PROMPTS, Verdict, Verdicts
from edge.package import Package
from edge.progress import Progress, SilentProgress
from edge.teacher import open_teacher


@dataclass(frozen=True, slots=True)
class StoredCheck:
    """The engine on this machine against the reference logits that the package carries."""

    kl_mean: float  # a lower bound: what is not among the best 64 counts as one outcome
    top1: float
    rows: int
    passed: bool


@dataclass(frozen=True, slots=True)
class VerifyReport:
    path: Path
    files: int
    stored: StoredCheck
    reference: Verdicts | None  # None: not asked for

    @property
    def passed(self) -> bool:
        measured = (self.reference.engine, self.reference.tier) if self.reference else ()
        return self.stored.passed and all(v is None or v.passed for v in measured)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "path": str(self.path), "passed": self.passed}

    def text(self) -> str:
        """A few lines for a terminal."""
        s = self.stored
        lines = [
            f"{self.path}: {'verified' if self.passed else 'FAILED'}",
            f"  {self.files} files have the hashes of the manifest",
            f"  engine against the stored reference: KL {s.kl_mean:.5f} or more, top-1 {s.top1:.4f} over {s.rows} rows: "
            f"{'passed' if s.passed else 'FAILED'}",
        ]
        if self.reference is not None:
            pairs = (("engine against reference", self.reference.engine), ("tier against source", self.reference.tier))
            lines += [f"  {name}: {_line(verdict)}" for name, verdict in pairs if verdict is not None]
        return "\n".join(lines)


def _line(v: Verdict) -> str:
    figures = f"KL {v.kl_mean:.5f}, top-1 {v.top1:.4f}, perplexity x{v.perplexity_ratio:.4f} over {v.tokens:,} tokens"
    return f"{figures}: {'passed' if v.passed else 'FAILED'}"


def verify_package(path: Path, *, reference: Path | None = None, progress: Progress | None = None) -> VerifyReport:
    """Checks every hash, runs the engine on the stored prompts, and with `reference` (the model file that the package was
    built from) exports again and measures both verdicts over the manifest's text.

    Raises PackageError where files differ; a verdict that fails is in the report.
    """
    progress = progress or SilentProgress()
    package = Package.open(path, force=True)
    package.verify_hashes(progress)
    stored = _check_stored(package, progress)
    measured = None if reference is None else _measure_again(package, reference, progress)
    return VerifyReport(package.path, len(package.manifest.files), stored, measured)


def _check_stored(package: Package, progress: Progress) -> StoredCheck:
    manifest = package.manifest
    verdict = manifest.verdicts.engine
    if not manifest.reference or verdict is None or REFERENCE_PROMPTS not in manifest.files:
        raise PackageError(f"{package.path}: carries no reference logits. Build it again: {manifest.build_command}")
    prompts = manifest.reference
    found = Comparison()
    longest = max(len(p.token_ids) for p in prompts)
    progress.start("running the stored prompts", sum(len(p.token_ids) for p in prompts), "tokens")
    try:
        with (
            np.load(package.file(REFERENCE_PROMPTS), allow_pickle=False) as arrays,
            open_teacher(package.path / "engine", package.spec, longest) as teacher,
        ):
            for prompt in prompts:
                ids, best, norm = (arrays[f"{prompt.name}.{key}"] for key in ("ids", "logits", "log_sum_exp"))
                begin = 0
                for rows in teacher.rows(prompt.token_ids):
                    end = begin + len(rows)
                    found.add_stored(ids[begin:end], best[begin:end], norm[begin:end], rows)
                    progress.advance(end - begin)
                    begin = end
    except (KeyError, ValueError, OSError) as error:
        raise PackageError(
            f"{package.file(REFERENCE_PROMPTS)}: cannot be read ({error}). Build it again: {manifest.build_command}"
        ) from error
    progress.done()
    passed = found.kl_mean <= verdict.limits.kl_mean and found.top1 >= verdict.limits.top1
    return StoredCheck(found.kl_mean, found.top1, found.rows, passed)


def _measure_again(package: Package, model: Path, progress: Progress) -> Verdicts:
    from calibration.tiers import load_tier
    from engines.portable.export import write_portable
    from engines.sources.base import open_source
    from engines.verdict import prove

    manifest, measured = package.manifest, package.manifest.verdicts.engine
    assert measured is not None  # _check_stored asked for it
    digest = file_sha256(model, progress)
    if digest != manifest.source.sha256:
        raise PackageError(
            f"{package.path}: built from a file with SHA-256 {manifest.source.sha256[:16]}, {model} has {digest[:16]}. "
            f"Give the file that it was built from ({manifest.source.name}), or build again"
        )
    source, tier = open_source(model), load_tier(manifest.tier)
    with tempfile.TemporaryDirectory(prefix="edge-verify-") as scratch:
        onnx = Path(scratch) / "tier.onnx"
        exported = write_portable(source, tier, onnx, progress=progress, requantise=manifest.requantised)
        found = prove(package.path, source, tier, exported, measured.tokens, measured.window_tokens, progress)
    return found.verdicts(tier)
