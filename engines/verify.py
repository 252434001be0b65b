"""`edge verify`: the proof in a package, repeated. Owns: the order of the checks. Needs: package, teacher. Never: writes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from calibration.tiers import load_tier
from edge.baked.folder import verify_baked
from edge.comparison import Comparison
from edge.manifest import Verdict, VerdictLimits, Verdicts, outcome
from edge.package import Package
from edge.progress import Progress, SilentProgress
from edge.teacher import open_teacher
from engines.stored_reference import read_stored
from engines.verify_device import DeviceReport, verdict_figures, verify_device_package
from engines.verify_reference import measure_engine_again

SINGLY = 8  # of each stored prompt, the last tokens are decoded one by one


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
    prefixes: tuple[str, ...]  # baked; their pages have the hash of their header
    built: Verdicts  # what the manifest says
    stored: StoredCheck
    reference: Verdicts | None  # None: not asked for

    @property
    def passed(self) -> bool:
        verdicts = (self.built, self.reference) if self.reference else (self.built,)
        return self.stored.passed and all(v is not None and v.passed for pair in verdicts for v in (pair.engine, pair.tier))

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "path": str(self.path), "passed": self.passed}

    def text(self) -> str:
        """A few lines for a terminal."""
        s = self.stored
        lines = [
            f"{self.path}: {'verified' if self.passed else 'FAILED'}",
            f"  {self.files} files have the hashes of the manifest",
            *([f"  baked prefixes that are whole: {', '.join(self.prefixes)}"] if self.prefixes else []),
            f"  engine against the stored reference: KL {s.kl_mean:.5f} or more, top-1 {s.top1:.4f} over {s.rows} rows: "
            f"{'passed' if s.passed else 'FAILED'}",
        ]
        for name, verdict in (("engine", self.built.engine), ("tier", self.built.tier)):
            if verdict is None or not verdict.passed:
                lines.append(f"  the {name} verdict of the build: {'missing' if verdict is None else _line(verdict)}")
        if self.reference is not None:
            pairs = (("engine against reference", self.reference.engine), ("tier against source", self.reference.tier))
            lines += [f"  {name}: {_line(verdict)}" for name, verdict in pairs if verdict is not None]
        return "\n".join(lines)


def _line(v: Verdict) -> str:
    return f"{verdict_figures(v)}: {outcome(v.broken)}"


def verify_package(
    path: Path, *, reference: Path | None = None, progress: Progress | None = None
) -> VerifyReport | DeviceReport:
    """Checks every hash, runs the engine on the stored prompts, and with `reference` (the model file that the package was
    built from) exports again and measures both verdicts over the manifest's text.

    An engine that this machine cannot run gets a DeviceReport, of all that can be checked without running it.
    Raises PackageError where files differ; a verdict that fails is in the report.
    """
    progress = progress or SilentProgress()
    package = Package.open(path, force=True)
    if package.engine_kind != "cpu":
        return verify_device_package(package, progress, reference)
    package.verify_hashes(progress)
    prefixes = verify_baked(package, progress)
    # A manifest may have been written by anybody: its limits count only where they are the tier's own.
    limits = load_tier(package.manifest.tier).engine_limits
    stored = _check_stored(package, limits.of_verdict, progress)
    measured = None if reference is None else measure_engine_again(package, reference, progress)
    return VerifyReport(package.path, len(package.manifest.files), prefixes, package.manifest.verdicts, stored, measured)


def _check_stored(package: Package, limits: VerdictLimits, progress: Progress) -> StoredCheck:
    stored, prompts = read_stored(package), package.manifest.reference
    found = Comparison()
    longest = max(len(p.token_ids) for p in prompts)
    progress.start("running the stored prompts", sum(len(p.token_ids) for p in prompts), "tokens")
    with open_teacher(package.path / "engine", package.spec, longest) as teacher:
        for prompt in prompts:
            best_ids, best, norm = stored[prompt.name]
            first = len(prompt.token_ids) - len(norm)  # the rows of the end of the prompt are stored
            begin = 0
            for rows in teacher.rows(prompt.token_ids, singly=SINGLY):
                end = begin + len(rows)
                if end > first:
                    kept = slice(max(begin, first) - first, end - first)
                    found.add_stored(best_ids[kept], best[kept], norm[kept], rows[max(first - begin, 0) :])
                progress.advance(len(rows))
                begin = end
    progress.done()
    passed = found.kl_mean <= limits.kl_mean and found.top1 >= limits.top1
    return StoredCheck(found.kl_mean, found.top1, found.rows, passed)
