"""`edge verify` of an engine that only its device can run: what can be checked wherever the package lies. Owns: DeviceReport.
Needs: package, engine_check; on that device a worker process. Never: TensorRT in this process."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from calibration.tiers import Limits as TierLimits
from calibration.tiers import load_tier
from edge.engine_check import find_obstacle
from edge.engine_library import TITLES, find_library
from edge.engine_record import EngineRecord
from edge.machine import find_machine
from edge.manifest import Verdict, outcome
from edge.package import Package
from edge.progress import Progress
from edge.units import human_bytes
from engines.stored_reference import read_stored
from engines.tensorrt.opened import find_differences, open_plan
from engines.verify_reference import GraphAgain, measure_graph_again


@dataclass(frozen=True, slots=True)
class Proof:
    """A verdict of the build, or of the device."""

    name: str
    verdict: Verdict | None
    broken: tuple[str, ...]  # figures beyond the limits of the tier, whatever the manifest says of limits

    @property
    def passed(self) -> bool:
        return self.verdict is not None and not self.broken


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """The engine was not run; all else of the package was checked."""

    path: Path
    files: int
    engine: EngineRecord
    plan_bytes: int | None  # None: its device has not made it yet
    proofs: tuple[Proof, ...]
    again: GraphAgain | None  # what the model gives today; None: not asked for
    opened: tuple[str, ...] | None  # on its device: what the plan has otherwise than the manifest; None: it was not opened
    not_run: str  # why, and what to do about it

    @property
    def passed(self) -> bool:
        """Whether all that can be checked here is right."""
        return (
            not self.opened
            and all(proof.passed for proof in self.proofs)
            and (self.again is None or self._is_reproduced(self.again))
        )

    @staticmethod
    def _is_reproduced(again: GraphAgain) -> bool:
        found = (again.verdicts.graph, again.verdicts.tier)
        return not again.differing and all(verdict is not None and verdict.passed for verdict in found)

    def as_dict(self) -> dict[str, Any]:
        """`engine_run` is what a run on the device would give; null: there was none."""
        plan = self.engine.plan
        return {
            "path": str(self.path),
            "passed": self.passed,
            "files": self.files,
            "engine": self.engine.kind,
            "sm": self.engine.sm,
            "plan_version": None if plan is None else plan.version,
            "plan_bytes": self.plan_bytes,
            "verdicts": {proof.name: asdict(proof)["verdict"] for proof in self.proofs},
            "reference": None if self.again is None else asdict(self.again),
            "plan_opened": None if self.opened is None else {"differing": self.opened},
            "engine_run": None,
            "engine_not_run": self.not_run,
        }

    def text(self) -> str:
        """A few lines for a terminal."""
        lines = [
            f"{self.path}: {'verified, but for a run of its engine' if self.passed else 'FAILED'}",
            f"  {self.files} files have the hashes of the manifest",
            f"  {plan_line(self.engine, self.plan_bytes)}",
        ]
        for proof in self.proofs:
            found = f"{verdict_figures(proof.verdict)}: {outcome(proof.broken)}" if proof.verdict else "missing: FAILED"
            lines.append(f"  the {proof.name} verdict of the build: {found}")
        if self.again is not None:
            lines += self._again_lines(self.again)
        if self.opened is not None:
            same = (
                f"has other {', '.join(self.opened)}: FAILED"
                if self.opened
                else "has the manifest's inputs, outputs and profiles"
            )
            lines.append(f"  the plan, opened on this GPU, {same}")
        lines.append(f"  engine not run: {self.not_run}")
        return "\n".join(lines)

    @staticmethod
    def _again_lines(again: GraphAgain) -> list[str]:
        same = "has the same graphs and weights" if not again.differing else f"differs in {', '.join(again.differing)}: FAILED"
        lines = [f"  the model, exported and lowered again, {same}"]
        lines += [f"  {name}: not compared, since their scales were observed" for name in again.not_compared]
        for name, verdict in (("graph", again.verdicts.graph), ("tier", again.verdicts.tier)):
            assert verdict is not None, "both are measured"
            lines.append(f"  the {name} verdict now: {verdict_figures(verdict)}: {outcome(verdict.broken)}")
        return lines


def plan_line(engine: EngineRecord, plan_bytes: int | None) -> str:
    """What stands in the package, on one line."""
    title = TITLES[engine.kind]
    if engine.plan is None or plan_bytes is None:
        return f"{title} for sm {engine.sm}, without a plan: its device makes it"
    return f"{title} {engine.plan.version} for sm {engine.sm}, plan of {human_bytes(plan_bytes)}"


def verdict_figures(v: Verdict) -> str:
    return f"KL {v.kl_mean:.5f}, top-1 {v.top1:.4f}, perplexity x{v.perplexity_ratio:.4f} over {v.tokens:,} tokens"


def verify_device_package(package: Package, progress: Progress, reference: Path | None = None) -> DeviceReport:
    """Checks every hash, the stored reference and the verdicts, and with the model file `reference` that it still gives the
    same graphs and weights. PackageError where files differ; a verdict that fails is in the report."""
    manifest, place = package.manifest, str(package.path)
    assert manifest.engine is not None, "a CPU engine is run"
    package.verify_hashes(progress)
    read_stored(package)
    tier, verdicts = load_tier(manifest.tier), manifest.verdicts
    proofs = [_judge("graph", verdicts.graph, tier.engine_limits), _judge("tier", verdicts.tier, tier.source_limits)]
    if verdicts.engine is not None:
        proofs.append(_judge("engine", verdicts.engine, tier.engine_limits))
    obstacle = find_obstacle(manifest, place, find_machine(), find_library(manifest.engine.kind), plugins={})
    title, plan = TITLES[manifest.engine.kind], manifest.engine.plan
    return DeviceReport(
        path=package.path,
        files=len(manifest.files),
        engine=manifest.engine,
        plan_bytes=None if plan is None else manifest.files[plan.path].bytes,
        proofs=tuple(proofs),
        again=None if reference is None else measure_graph_again(package, reference, progress),
        opened=None if obstacle else _open(package, manifest.engine),
        not_run=f"{obstacle.fact}. {obstacle.remedy}" if obstacle else f"edge-zero has no executor for {title} yet",
    )


def _open(package: Package, engine: EngineRecord) -> tuple[str, ...]:
    """Deserialises the plan, which fits this machine, and compares."""
    plan = engine.plan
    assert plan is not None, "a package without a plan does not fit any machine"
    graph = next(graph for graph in engine.graphs if graph.sha256 == plan.graph_sha256)
    return find_differences(open_plan(engine.kind, package.file(plan.path)), graph)


def _judge(name: str, verdict: Verdict | None, limits: TierLimits) -> Proof:
    """A manifest may have been written by anybody: its limits count only where they are the tier's own."""
    if verdict is None:
        return Proof(name, None, ())
    held = limits.of_verdict
    return Proof(name, verdict, held.broken_by(verdict.kl_mean, verdict.top1, verdict.perplexity_ratio))
