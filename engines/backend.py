"""What a target adds to a build. Owns: the types between the order of a build and the kinds of engines. Needs: sources, tiers.
Never: what an engine is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from calibration.tiers import Tier
from edge.engine_record import EngineRecord
from edge.manifest import Capabilities, Limits
from edge.progress import Progress
from engines.engine_weight import EngineWeight
from engines.portable.metadata import ExportReport
from engines.sources.base import Source
from engines.verdict import Role, TestedOpener


@dataclass(frozen=True, slots=True)
class Stage:
    """A build on its way: what a backend works with."""

    folder: Path  # becomes the package; engine/ is the backend's
    scratch: Path  # inside it, removed before the end
    name: str  # what the user calls the model, for messages
    source: Source
    tier: Tier
    requantise: bool
    exported: ExportReport  # the portable ONNX of the tier in float32, in `scratch`
    target: str  # a device profile
    context: int | None  # of the caches; None: an engine that takes any
    ignore_budget: bool
    progress: Progress


@dataclass(frozen=True, slots=True)
class BuilderUse:
    """What the process took in which a library made the plan."""

    peak_bytes: int  # resident
    seconds: float


@dataclass(frozen=True, slots=True)
class BuiltEngine:
    """What a backend made of a stage: the engine stands in `folder`/engine."""

    record: EngineRecord | None
    weights: Mapping[str, EngineWeight]  # by canonical tensor name
    limits: Limits
    capabilities: Capabilities
    libraries: tuple[str, ...]  # distributions whose versions belong in the manifest, beside those of every build
    role: Role  # what `open_tested` gives
    open_tested: TestedOpener
    builder: BuilderUse | None  # None: no library built here


@dataclass(frozen=True, slots=True)
class Backend:
    """One kind of engine."""

    check: Callable[[], None]  # raises EdgeError where something that it needs is missing; quick, before any work
    build: Callable[[Stage], BuiltEngine]
