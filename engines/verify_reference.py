"""A package's proof from its model file: exported again, measured again. Owns: the scratch folder. Needs: export, lowering,
ONNX Runtime. Never: a file of the package is written."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from calibration.tiers import Tier, load_tier
from edge.engine_record import EngineRecord
from edge.errors import PackageError
from edge.manifest import Verdict, Verdicts
from edge.package import Package
from edge.progress import Progress
from edge.teacher import open_teacher
from engines.portable.metadata import ExportReport
from engines.sources.base import Source
from engines.texts import text_tokens

if TYPE_CHECKING:
    from engines.verdict import Role, TestedOpener


@dataclass(frozen=True, slots=True)
class GraphAgain:
    """The graph that the model gives today."""

    verdicts: Verdicts
    differing: tuple[str, ...]  # what has another hash than in the manifest: weights, the graph for TensorRT 10.15 ...
    not_compared: tuple[str, ...]  # graphs with int8 activations: scales that were observed vary by machine


def measure_engine_again(package: Package, model: Path, progress: Progress) -> Verdicts:
    """Both verdicts of a cpu package over the manifest's text. PackageError where `model` is not what it was built from."""
    with _exported(package, model, package.manifest.verdicts.engine, progress) as again:
        return again.prove(lambda longest: open_teacher(package.path / "engine", package.spec, longest), "engine")


def measure_graph_again(package: Package, model: Path, progress: Progress) -> GraphAgain:
    """Lowers the model again, compares graphs and weights with the manifest, and measures the graph. Raises as the other."""
    from engines.tensorrt.backend import READERS_OF, linear_graph, lower_model

    record = package.manifest.engine
    assert record is not None, "a CPU engine has no graph"
    with _exported(package, model, package.manifest.verdicts.graph, progress) as again:
        lowered = lower_model(
            again.source,
            again.tier,
            package.manifest.requantised,
            package.manifest.limits.max_context,
            READERS_OF[record.kind],
            again.folder,
            again.folder / "graphs",
            progress,
        )
        found = {_graph_name(record.kind, graph.since, graph.activations): graph.sha256 for graph in lowered.graphs}
        found["the weights"] = lowered.weights_sha256
        verdicts = again.prove(linear_graph(lowered, package.spec), "graph")
    built = _hashes(record, "float16") | {"the weights": record.weights_sha256}
    differing = tuple(what for what, digest in built.items() if found.get(what) != digest)
    return GraphAgain(verdicts, differing, not_compared=tuple(_hashes(record, "int8")))


def _hashes(record: EngineRecord, activations: str) -> dict[str, str]:
    """Of its graphs with such activations, by name."""
    graphs = [graph for graph in record.graphs if graph.activations == activations]
    return {_graph_name(record.kind, graph.since, activations): graph.sha256 for graph in graphs}


def _graph_name(kind: str, since: str, activations: str) -> str:
    return f"the graph for {kind} {since}{'' if activations == 'float16' else f' with {activations} activations'}"


@dataclass(frozen=True, slots=True)
class _Again:
    """A model exported anew in `folder`, and what its proof was measured on."""

    package: Package
    folder: Path
    source: Source
    tier: Tier
    exported: ExportReport
    measured: Verdict
    progress: Progress

    def prove(self, open_tested: TestedOpener, role: Role) -> Verdicts:
        from engines.verdict import prove

        found = prove(
            self.package.path / "tokenizer",
            self.source,
            self.tier,
            self.exported,
            open_tested,
            tokens=text_tokens(self.measured, self.package.open_tokenizer()),
            window=self.measured.window_tokens,
            progress=self.progress,
        )
        return found.verdicts(self.tier, role)


@contextmanager
def _exported(package: Package, model: Path, measured: Verdict | None, progress: Progress) -> Iterator[_Again]:
    from engines.portable.export import write_portable
    from engines.sources.base import open_source
    from engines.sources.digest import source_sha256

    manifest = package.manifest
    if measured is None:
        raise PackageError(f"{package.path}: has no verdict to repeat. Build it again: {manifest.build_command}")
    source, tier = open_source(model, manifest.spec.context_length), load_tier(manifest.tier)
    digest = source_sha256(source, progress)
    if digest != manifest.source.sha256:
        raise PackageError(
            f"{package.path}: built from a model with SHA-256 {manifest.source.sha256[:16]}, {model} has {digest[:16]}. "
            f"Give the model that it was built from ({manifest.source.name}), or build again"
        )
    needed = _scratch_bytes(source, tier, manifest.requantised, is_lowered=manifest.engine is not None)
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < needed:
        raise PackageError(
            f"{tempfile.gettempdir()}: {free / 1e6:.0f} MB free, the reference takes {needed / 1e6:.0f} MB there. "
            "Free some, or set TMPDIR to a folder on another disk"
        )
    with tempfile.TemporaryDirectory(prefix="edge-verify-") as scratch:
        folder = Path(scratch)
        exported = write_portable(source, tier, folder / "tier.onnx", progress=progress, requantise=manifest.requantised)
        yield _Again(package, folder, source, tier, exported, measured, progress)


def _scratch_bytes(source: Source, tier: Tier, requantise: bool, *, is_lowered: bool) -> int:
    """The most that the exports of a proof hold on the disk: the tier's and, where a weight differs, the source's in float32;
    for a graph also the tier's in float16, and what that is lowered to. Reads one row of every tensor."""
    from engines.portable.convert import Converter
    from engines.portable.data import plan_layout
    from engines.portable.partial import GRAPH_BYTES
    from engines.sizes import planned_forms
    from engines.sources.exact import ExactSource
    from engines.target_sizes import lowered_bytes

    exports = [Converter(source, tier, requantise, "float32"), Converter(ExactSource(source), None, False, "float32")]
    if is_lowered:
        exports.append(Converter(source, tier, requantise, "float16"))
    forms = [list(planned_forms(source, converter)) for converter in exports]
    lowered = sum(lowered_bytes(form) for form in forms[-1]) if is_lowered else 0
    return sum(plan_layout(tensors).nbytes + GRAPH_BYTES for tensors in forms) + lowered
