"""Plans that TensorRT-RTX really builds for an A10 without a GPU. They cannot run here, so what they hold is read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import GEMMA, LLAMA, TinyModel

pytest.importorskip("tensorrt_rtx", reason="needs the rtx extra: tensorrt-rtx-cu13")
pytest.importorskip("onnx", reason="needs the build extra: onnx")

import onnx
import tensorrt_rtx
from lowered_graphs import CONTEXT, lower_tiny

from edge.errors import BuildError, EdgeError
from edge.progress import SilentProgress
from engines.portable.data import pack_int4
from engines.tensorrt.builder import build_plan
from engines.tensorrt.job import BuildJob, BuildOutcome, PhaseStarted, partial_path
from engines.tensorrt.library import need_library
from engines.tensorrt.plan_file import PlanFacts, plan_facts
from engines.tensorrt.profiles import profiles_of
from engines.tensorrt.worker import build

pytestmark = pytest.mark.build

# As the published SmolLM2: int4 layers, an int8 table that the head shares.
PUBLISHED = replace(LLAMA, type="Q4_1", types={"embed": "Q8_0"})
MODELS = {
    "llama with a tied table": PUBLISHED,
    # With fewer than four heads it has no kernel for one token ("not supported by a dedicated kernel").
    "llama with padded widths": replace(LLAMA, hidden=48, feed_forward=72, heads=4, kv_heads=1, tied=False),
    "gemma with windows": replace(GEMMA, type="Q4_0"),
    "gemma with soft caps": replace(GEMMA, attention_soft_cap=5.0, logit_soft_cap=3.0),
}


@dataclass(frozen=True)
class Rtx:
    """A job for TensorRT-RTX, and the plan that came of it."""

    job: BuildJob
    outcome: BuildOutcome

    @property
    def plan(self) -> bytes:
        return self.job.plan.read_bytes()

    @property
    def int4(self) -> dict[str, np.ndarray]:
        """Each int4 weight of the graph, int8 [K, N]."""
        graph = onnx.load(str(self.job.graph)).graph
        tensors = [tensor for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.INT4]
        return {tensor.name: onnx.numpy_helper.to_array(tensor).astype(np.int8) for tensor in tensors}


def rtx_job(gguf: Path, tier: str, folder: Path, **changes: Any) -> BuildJob:
    folder.mkdir()
    model, lowered = lower_tiny(gguf, tier, folder, ("tensorrt-rtx",))
    graph = lowered.graphs[0]
    fields: dict[str, Any] = {
        "library": "tensorrt-rtx",
        "graph": graph.path,
        "plan": folder / "model.plan",
        "sm": "8.6",
        "profiles": profiles_of("linear", model.spec, 16, CONTEXT),
        "tensors": graph.tensors,
    }
    return BuildJob(**{**fields, **changes})


@pytest.fixture(scope="module")
def rtx(tiny_gguf: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Rtx]:
    """rtx(TinyModel, tier) -> Rtx, each pair built once."""
    known: dict[str, Rtx] = {}

    def built(model: TinyModel, tier: str = "int4") -> Rtx:
        key = f"{model} {tier}"
        if key not in known:
            job = rtx_job(tiny_gguf(model), tier, tmp_path_factory.mktemp("rtx") / "build")
            known[key] = Rtx(job, build_plan(job, SilentProgress()))
        return known[key]

    return built


def columns_found(plan: bytes, weight: np.ndarray) -> int:
    """How many columns of an int4 weight [K, N] stand in the plan, packed two values a byte, as the library arranges them."""
    return sum(plan.find(pack_int4(column.view(np.uint8)).tobytes()) >= 0 for column in np.ascontiguousarray(weight.T))


@pytest.mark.parametrize("name", MODELS)
def test_a_plan_is_for_its_target_and_as_long_as_it_says(rtx: Callable[..., Rtx], name: str) -> None:
    built = rtx(MODELS[name])
    facts = plan_facts(built.job.plan)
    assert facts is not None
    assert (facts.version, facts.sms) == (tensorrt_rtx.__version__, ("8.6",))
    assert facts.plan_bytes == built.outcome.plan_bytes == len(built.plan)
    assert facts.weights_bytes >= built.outcome.weights_bytes
    assert built.outcome.note == ""


@pytest.mark.parametrize("name", MODELS)
def test_the_library_sees_the_inputs_and_outputs_of_the_graph(rtx: Callable[..., Rtx], name: str) -> None:
    built = rtx(MODELS[name])
    seen = {tensor.name: tensor for tensor in built.outcome.tensors}
    wanted = {tensor.name: tensor for tensor in built.job.tensors}
    assert seen.keys() == wanted.keys()
    assert all(seen[name] == tensor for name, tensor in wanted.items() if tensor.is_input)


def test_every_int4_weight_stands_in_the_plan_with_four_bits(rtx: Callable[..., Rtx]) -> None:
    built = rtx(PUBLISHED)
    assert len(built.int4) == 7 * PUBLISHED.layers
    for name, weight in built.int4.items():
        assert columns_found(built.plan, weight) == weight.shape[1], name


def test_the_same_structure_with_other_weights_is_another_plan(rtx: Callable[..., Rtx]) -> None:
    built, other = rtx(PUBLISHED), rtx(replace(PUBLISHED, seed=1))
    assert built.outcome.weights_bytes == other.outcome.weights_bytes
    assert built.plan != other.plan
    for name, weight in built.int4.items():
        assert columns_found(other.plan, weight) == 0, name


def test_building_again_gives_the_same_weights_and_a_plan_of_the_same_size(rtx: Callable[..., Rtx], tmp_path: Path) -> None:
    built = rtx(PUBLISHED)
    again = replace(built.job, plan=tmp_path / "again.plan")
    build_plan(again, SilentProgress())
    plan, facts = again.plan.read_bytes(), plan_facts(again.plan)
    assert facts == plan_facts(built.job.plan) and facts is not None
    # The weights stand last. The rest differs now and then: outputs and free sizes are ordered by where they lie in memory.
    assert plan[-facts.weights_bytes :] == built.plan[-facts.weights_bytes :]


def test_a_plan_names_every_capability_that_the_library_has(tiny_gguf: Callable[..., Path], tmp_path: Path) -> None:
    # Without int4, which the oldest has not.
    job = rtx_job(tiny_gguf(replace(LLAMA, layers=1)), "int8", tmp_path / "build")
    names = [name for name in tensorrt_rtx.ComputeCapability.__members__ if name.startswith("SM")]
    assert len(names) >= 6
    for name in names:
        sm = f"{name[2:-1]}.{name[-1]}"
        build_plan(replace(job, sm=sm), SilentProgress())
        facts = plan_facts(job.plan)
        assert facts == PlanFacts(tensorrt_rtx.__version__, (sm,), job.plan.stat().st_size, facts.weights_bytes if facts else 0)


def refusal(job: BuildJob) -> str:
    before = sorted(job.plan.parent.iterdir())
    with pytest.raises(BuildError) as caught:
        build_plan(job, SilentProgress())
    assert sorted(job.plan.parent.iterdir()) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("sm", ["8.7", "9.9"])
def test_a_target_that_the_library_has_not_is_refused_with_those_that_it_has(
    rtx: Callable[..., Rtx], tmp_path: Path, sm: str
) -> None:
    message = refusal(replace(rtx(PUBLISHED).job, sm=sm, plan=tmp_path / "model.plan"))
    assert f"sm {sm}: TensorRT-RTX {tensorrt_rtx.__version__} builds for sm 7.5, 8.0, 8.6, 8.9" in message


def test_int4_for_a_capability_without_it_is_refused_in_the_library_s_words(rtx: Callable[..., Rtx], tmp_path: Path) -> None:
    message = refusal(replace(rtx(PUBLISHED).job, sm="7.5", plan=tmp_path / "model.plan"))
    assert "built no plan" in message and "int4" in message


def test_a_node_that_the_library_does_not_know_is_named(rtx: Callable[..., Rtx], tmp_path: Path) -> None:
    job = rtx(PUBLISHED).job
    model = onnx.load(str(job.graph), load_external_data=False)
    node = next(node for node in model.graph.node if node.op_type == "Attention")
    node.op_type = "Distraction"
    broken = job.graph.with_name("broken.onnx")
    broken.write_bytes(model.SerializeToString())
    message = refusal(replace(job, graph=broken, plan=tmp_path / "model.plan"))
    broken.unlink()
    assert f"{node.name}: TensorRT-RTX {tensorrt_rtx.__version__} does not take this Distraction (" in message


def test_a_graph_without_its_weights_is_refused(rtx: Callable[..., Rtx], tmp_path: Path) -> None:
    alone = tmp_path / "alone.onnx"
    alone.write_bytes(rtx(PUBLISHED).job.graph.read_bytes())
    assert "alone.onnx" in refusal(replace(rtx(PUBLISHED).job, graph=alone, plan=tmp_path / "model.plan"))


def test_a_file_that_is_no_graph_is_refused(rtx: Callable[..., Rtx], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.onnx"
    wrong.write_text("no graph at all")
    assert "cannot read it" in refusal(replace(rtx(PUBLISHED).job, graph=wrong, plan=tmp_path / "model.plan"))


class Heard:
    """What a worker sends."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def send(self, message: Any) -> None:
        self.messages.append(message)


def test_the_library_tells_its_phases_and_stops_when_asked(rtx: Callable[..., Rtx], tmp_path: Path) -> None:
    job = replace(rtx(PUBLISHED).job, plan=tmp_path / "model.plan")
    heard, stop = Heard(), threading.Event()
    stop.set()
    with pytest.raises(EdgeError, match=r"was stopped\. Run it again to go on"):
        build(job, heard, stop)  # type: ignore[arg-type]
    assert any(isinstance(message, PhaseStarted) and message.steps > 1 for message in heard.messages)
    assert not partial_path(job.plan).exists()


def test_need_library_says_the_version() -> None:
    assert need_library("tensorrt-rtx") == tensorrt_rtx.__version__
