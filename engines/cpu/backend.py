"""CPU engines for a build. Owns: plan.json and weights.bin of a package. Needs: lowering, weights. Never: the order of the
build."""

from __future__ import annotations

from pathlib import Path

from edge import contract
from edge.executors.cpu_plan import PLAN_FILE, WEIGHTS_FILE, CpuPlan
from edge.executors.native_core import load_core
from edge.manifest import Capabilities, Limits
from edge.presets import presets_for
from edge.progress import Progress
from edge.teacher import open_teacher
from engines.backend import Backend, BuiltEngine, Stage
from engines.cpu.lower import lower
from engines.cpu.schedule import joined_vectors
from engines.cpu.weights import write_weights
from engines.engine_weight import EngineWeight
from engines.portable.reader import read_portable

MAX_STEP_TOKENS = 2048  # of one engine step; a runtime takes fewer and pays workspace for those only
MAX_SEQUENCES = 64


def build_cpu_engine(stage: Stage) -> BuiltEngine:
    """A CPU plan and its weight file. It takes the model's whole context: a runtime pays for what it uses."""
    folder, spec = stage.folder / "engine", stage.source.spec
    plan = write_engine(stage.exported.path, folder, stage.progress)
    weights = {tensor.name: EngineWeight(tensor.kind, tensor.bytes, 0.0) for tensor in plan.tensors}
    # Biases are joined in the plan, one by one in a report.
    biases = (report for report in stage.exported.tensors if report.name.endswith(".bias"))
    weights |= {bias.name: EngineWeight("fp32", 4 * bias.weights, 0.0) for bias in biases}
    return BuiltEngine(
        record=None,
        weights=weights,
        limits=Limits(spec.context_length, MAX_STEP_TOKENS, MAX_SEQUENCES, contract.SEAL_TOKENS),
        capabilities=Capabilities(presets=presets_for(spec.head_dim), prefixes=True, batch_invariant=True),
        libraries=(),
        role="engine",
        open_tested=lambda tokens: open_teacher(folder, spec, tokens),
        builder=None,
    )


def write_engine(portable: Path, folder: Path, progress: Progress) -> CpuPlan:
    """Lowers the portable ONNX for the cpu target into `folder`: plan.json and weights.bin."""
    model = read_portable(portable)
    steps, graph = lower(portable, model.spec)
    folder.mkdir()
    tensors = write_weights(model, steps, graph.constants, joined_vectors(graph), folder / WEIGHTS_FILE, progress)
    plan = CpuPlan(tensors, steps)
    (folder / PLAN_FILE).write_text(plan.to_json(), encoding="utf-8")
    return plan


def _need_core() -> None:
    load_core()


CPU = Backend(_need_core, build_cpu_engine)
