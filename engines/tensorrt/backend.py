"""TensorRT and TensorRT-RTX engines for a build. Owns: engine/ of such a package. Needs: lowering, the builder. Never: the
order of a build.

TensorRT-RTX builds its plan here, for hardware that is elsewhere. TensorRT builds only on the device itself: the package then
holds every graph that a TensorRT of some version may need, and `edge build NAME.edge --finish` makes the plan there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from calibration.tiers import Tier
from edge.build_memory import builder_bytes
from edge.devices import Gpu, load_device
from edge.engine_library import LibraryKind
from edge.engine_record import LARGEST_FLOAT16, EngineRecord, GraphRecord, PlanRecord
from edge.errors import BudgetError, BuildError
from edge.executors.native import available_threads
from edge.manifest import Capabilities, Limits
from edge.monitors.memory import machine_memory
from edge.pages.linear import SEQUENCES
from edge.progress import Progress
from edge.spec import ModelSpec
from edge.text.tokenizer import Tokenizer
from edge.units import human_bytes
from engines.backend import Backend, BuilderUse, BuiltEngine, Stage
from engines.portable.export import write_portable
from engines.reference.ort import OrtGraph
from engines.sources.base import Source
from engines.tensorrt.builder import build_plan
from engines.tensorrt.float_range import largest_value
from engines.tensorrt.int8_inputs import measure_int8_inputs, observed_scales
from engines.tensorrt.job import BuildJob
from engines.tensorrt.library import need_library
from engines.tensorrt.lower import Lowered, LoweredGraph, lower_graphs
from engines.tensorrt.profiles import profiles_of
from engines.texts import first_windows
from engines.verdict import Tested, TestedOpener

RANGE_TOKENS = 512  # of text over which activations are watched

READERS_OF: dict[LibraryKind, tuple[str, ...]] = {
    "tensorrt-rtx": ("tensorrt-rtx",),
    # All that some board of a target may have: JetPack 6 brings 10.3, JetPack 7 10.16.
    "tensorrt": ("tensorrt-10.3", "tensorrt-10.15"),
}

GRAPHS = "engine/graphs"  # of a package whose plan the device makes
PLAN = "engine/model.plan"  # of a package whose plan is made here


def build_tensorrt_rtx_engine(stage: Stage) -> BuiltEngine:
    """A plan of TensorRT-RTX, built without a GPU. BuildError where the library is missing, or refuses the graph."""
    gpu, shapes = _gpu(stage), _shapes(stage)
    lowered = _lower(stage, shapes.context, stage.scratch / "graphs", READERS_OF["tensorrt-rtx"])
    largest = _largest_activation(stage, lowered, shapes)
    graph = _record(stage, lowered.graphs[0], None, shapes)
    _check_memory(stage, builder_bytes("tensorrt-rtx", lowered.weights_bytes))
    plan = stage.folder / PLAN
    plan.parent.mkdir()
    job = BuildJob(
        library="tensorrt-rtx",
        graph=lowered.graphs[0].path,
        plan=plan,
        sm=gpu.sm,
        profiles=graph.profiles,
        tensors=graph.tensors,
    )
    outcome = build_plan(job, stage.progress)
    record = EngineRecord(
        kind="tensorrt-rtx",
        sm=gpu.sm,
        weights_sha256=lowered.weights_sha256,
        graphs=(graph,),
        plan=PlanRecord(PLAN, graph.sha256, outcome.version, outcome.driver, None, {}, outcome.note),
        largest_activation=largest,
        note="",
    )
    use = BuilderUse(outcome.peak_bytes, outcome.seconds)
    return _built(stage, record, lowered, shapes, ("tensorrt-rtx-cu13",), use)


def build_tensorrt_engine(stage: Stage) -> BuiltEngine:
    """Everything that TensorRT needs on the device to make the plan; nothing here needs TensorRT."""
    gpu, shapes = _gpu(stage), _shapes(stage)
    (stage.folder / "engine").mkdir()
    lowered, note = _lower_for_board(stage, shapes.context)
    record = EngineRecord(
        kind="tensorrt",
        sm=gpu.sm,
        weights_sha256=lowered.weights_sha256,
        graphs=tuple(_record(stage, graph, f"{GRAPHS}/{graph.path.name}", shapes) for graph in lowered.graphs),
        plan=None,
        largest_activation=_largest_activation(stage, lowered, shapes),
        note=note,
    )
    return _built(stage, record, lowered, shapes, (), None)


def _lower_for_board(stage: Stage, context: int) -> tuple[Lowered, str]:
    """The graphs of a package whose plan the device makes, and what became of those with int8 activations, which are for
    tiers whose layers are int8."""
    folder, readers = stage.folder / GRAPHS, READERS_OF["tensorrt"]
    if stage.tier.name != "int8":
        return _lower(stage, context, folder, readers), ""
    tokenizer, window = stage.folder / "tokenizer", min(stage.tier.verify.window, context)
    scales = observed_scales(stage.exported.path, tokenizer, window, stage.progress)
    lowered = _lower(stage, context, folder, (*readers, *(f"{name}-int8" for name in readers)), scales)
    tested = next(graph for graph in lowered.graphs if graph.activations == "int8" and graph.attention == "linear")
    found = measure_int8_inputs(
        stage.exported.path, tested.path, stage.source.spec, tokenizer, window, stage.tier.engine_limits, stage.progress
    )
    if found.holds:
        return lowered, found.note
    for graph in lowered.graphs:
        if graph.activations == "int8":
            graph.path.unlink()
    return replace(lowered, graphs=tuple(g for g in lowered.graphs if g.activations != "int8")), found.note


@dataclass(frozen=True, slots=True)
class _Shapes:
    """What the engine is built for."""

    context: int  # M of the caches
    chunk: int  # new tokens of a prompt in one step


def _gpu(stage: Stage) -> Gpu:
    gpu = load_device(stage.target).gpu
    assert gpu is not None, f"{stage.target}: runs TensorRT and has no GPU"
    return gpu


def _shapes(stage: Stage) -> _Shapes:
    defaults = load_device(stage.target).defaults
    assert defaults is not None and stage.context is not None, f"{stage.target}: has a GPU and no defaults"
    return _Shapes(stage.context, min(defaults.prefill_tokens, stage.context))


def lower_model(
    source: Source,
    tier: Tier,
    requantise: bool,
    context: int,
    readers: tuple[str, ...],
    scratch: Path,
    folder: Path,
    progress: Progress,
    scales: Mapping[str, float] | None = None,
) -> Lowered:
    """The graphs for `readers` with caches of `context` tokens, in `folder`, which is made. `scales`: of int8 activations."""
    portable = scratch / "half.onnx"
    write_portable(source, tier, portable, progress=progress, requantise=requantise, dtype="float16", max_context=context)
    folder.mkdir()
    return lower_graphs(portable, folder, readers, progress, scales)


def _lower(
    stage: Stage, context: int, folder: Path, readers: tuple[str, ...], scales: Mapping[str, float] | None = None
) -> Lowered:
    return lower_model(
        stage.source, stage.tier, stage.requantise, context, readers, stage.scratch, folder, stage.progress, scales
    )


def _record(stage: Stage, graph: LoweredGraph, path: str | None, shapes: _Shapes) -> GraphRecord:
    return GraphRecord(
        path=path,
        since=graph.since,
        attention=graph.attention,
        activations=graph.activations,
        sha256=graph.sha256,
        tensors=graph.tensors,
        profiles=profiles_of(graph.attention, stage.source.spec, shapes.chunk, shapes.context),
    )


def _check_memory(stage: Stage, needed: int) -> None:
    available = machine_memory().available
    if needed > available and not stage.ignore_budget:
        raise BudgetError(
            f"{stage.name}: the builder takes about {human_bytes(needed)}, {human_bytes(available)} are available. "
            "Build on a larger machine and copy the package, or try it all the same: --ignore-budget"
        )


def _largest_activation(stage: Stage, lowered: Lowered, shapes: _Shapes) -> float:
    """BuildError where an activation leaves float16, which the verdict in float32 would not show."""
    spec, tokenizer = stage.source.spec, Tokenizer.open(stage.folder / "tokenizer")
    windows = first_windows(tokenizer, RANGE_TOKENS, min(RANGE_TOKENS, shapes.context))
    found = largest_value(_linear(lowered).path, spec, windows, available_threads(), stage.progress)
    if not found.fits:
        fact = f"activations reach {found.magnitude:,.0f} at {found.node}, float16 holds {LARGEST_FLOAT16:,.0f}"
        raise BuildError(
            f"{stage.name}: {fact}, so a GPU would give infinities. Build for the CPU: edge build {stage.name} --target cpu"
        )
    return found.magnitude


def _linear(lowered: Lowered) -> LoweredGraph:
    return next(graph for graph in lowered.graphs if graph.attention == "linear" and graph.activations == "float16")


def linear_graph(lowered: Lowered, spec: ModelSpec) -> TestedOpener:
    """The graph with linear KV, run in ONNX Runtime as its file stands there."""

    @contextmanager
    def open_tested(tokens: int) -> Iterator[Tested]:
        yield OrtGraph.open(_linear(lowered).path, spec, available_threads())

    return open_tested


def _built(
    stage: Stage,
    record: EngineRecord,
    lowered: Lowered,
    shapes: _Shapes,
    libraries: tuple[str, ...],
    builder: BuilderUse | None,
) -> BuiltEngine:
    return BuiltEngine(
        record=record,
        weights=lowered.stored,
        limits=Limits(shapes.context, shapes.chunk, SEQUENCES, shapes.chunk),
        # Matrix kernels are chosen by shape, so a row's bits depend on how many stand beside it.
        capabilities=Capabilities(presets=("exact",), prefixes=False, batch_invariant=False),
        libraries=libraries,
        role="graph",
        open_tested=linear_graph(lowered, stage.source.spec),
        builder=builder,
    )


def _need_rtx() -> None:
    need_library("tensorrt-rtx")


def _need_nothing() -> None:
    """TensorRT works on the device."""


TENSORRT = Backend(_need_nothing, build_tensorrt_engine)
TENSORRT_RTX = Backend(_need_rtx, build_tensorrt_rtx_engine)
