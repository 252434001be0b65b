"""From a tiny model to packages for cards and boards, by the order of a build."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from built_package import build_tiny
from edge_process import Edge
from synthetic import LLAMA, TinyModel

import engines.tensorrt.backend
from edge.engine_record import EngineRecord
from edge.errors import BudgetError, BuildError, ConfigError, RequestError
from edge.manifest import Manifest
from edge.monitors.memory import machine_memory
from edge.package import Package
from engines.tensorrt.float_range import LargestValue
from engines.tensorrt.int8_inputs import Int8Inputs
from engines.tensorrt.library import LibraryMissing
from engines.tensorrt.plan_file import plan_facts
from engines.verify import verify_package
from engines.verify_device import DeviceReport

pytestmark = pytest.mark.build
pytest.importorskip("edge._core", reason="needs the native core: pip install .")
pytest.importorskip("onnxruntime", reason="needs the build extra: onnxruntime")

Gguf = Callable[[str | TinyModel], Path]


def manifest_of(path: Path) -> Manifest:
    return Package.open(path, force=True).manifest


def record_of(path: Path) -> EngineRecord:
    record = manifest_of(path).engine
    assert record is not None
    return record


@pytest.fixture(scope="module")
def card(tiny_gguf: Gguf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package for an A10 by TensorRT-RTX. Do not change it."""
    pytest.importorskip("tensorrt_rtx", reason="needs the rtx extra: tensorrt-rtx-cu13")
    out = tmp_path_factory.mktemp("card") / "model.edge"
    build_tiny(tiny_gguf("gemma_published"), out, target="a10", context=64)
    return out


def test_a_package_for_a_card_holds_its_plan_and_nothing_to_build_it_from(card: Path) -> None:
    record = record_of(card)
    assert (record.kind, record.sm) == ("tensorrt-rtx", "8.6")
    assert record.plan is not None and record.plan.driver is None
    assert [graph.path for graph in record.graphs] == [None]
    facts = plan_facts(card / record.plan.path)
    assert facts is not None and facts.sms == ("8.6",)
    assert sorted(path.name for path in (card / "engine").iterdir()) == ["model.plan"]
    assert not (card / "scratch").exists()


def test_what_the_engine_cannot_do_stands_in_the_manifest(card: Path) -> None:
    manifest = manifest_of(card)
    assert manifest.limits.max_context == 64 and manifest.limits.max_sequences == 1
    assert manifest.capabilities.presets == ("exact",)
    assert not manifest.capabilities.batch_invariant and not manifest.capabilities.prefixes


def test_the_verdict_is_of_the_graph_because_no_engine_ran(card: Path) -> None:
    verdicts = manifest_of(card).verdicts
    assert verdicts.engine is None and verdicts.graph is not None
    assert verdicts.graph.top1 > 0.9 and verdicts.graph.kl_mean < 0.01


def test_the_same_model_gives_the_same_graph_and_weights(card: Path, tiny_gguf: Gguf, tmp_path: Path) -> None:
    build_tiny(tiny_gguf("gemma_published"), tmp_path / "again.edge", target="a10", context=64)
    first, second = record_of(card), record_of(tmp_path / "again.edge")
    assert first.weights_sha256 == second.weights_sha256
    assert [graph.sha256 for graph in first.graphs] == [graph.sha256 for graph in second.graphs]


def test_other_weights_of_the_same_structure_are_another_engine(tiny_gguf: Gguf, tmp_path: Path) -> None:
    for seed in (1, 2):
        build_tiny(tiny_gguf(replace(LLAMA, seed=seed)), tmp_path / f"{seed}.edge", target="orin-nx-16", context=64)
    first, second = (record_of(tmp_path / f"{seed}.edge") for seed in (1, 2))
    assert first.weights_sha256 != second.weights_sha256
    assert [graph.tensors for graph in first.graphs] == [graph.tensors for graph in second.graphs]


def test_another_context_is_another_graph(tiny_gguf: Gguf, tmp_path: Path) -> None:
    for context in (64, 96):
        build_tiny(tiny_gguf("llama"), tmp_path / f"{context}.edge", target="orin-nx-16", context=context)
    first, second = (record_of(tmp_path / f"{context}.edge") for context in (64, 96))
    assert first.weights_sha256 == second.weights_sha256
    linear = [next(graph for graph in record.graphs if graph.attention == "linear") for record in (first, second)]
    assert linear[0].sha256 != linear[1].sha256


def test_a_package_is_proved_again_from_its_model(card: Path, tiny_gguf: Gguf) -> None:
    report = verify_package(card, reference=tiny_gguf("gemma_published"))
    assert isinstance(report, DeviceReport) and report.again is not None
    assert report.again.differing == ()
    now, built = report.again.verdicts.graph, manifest_of(card).verdicts.graph
    assert now is not None and built is not None and now.kl_mean == pytest.approx(built.kl_mean, abs=1e-9)
    assert "has the same graphs and weights" in report.text()


def test_a_graph_that_the_model_does_not_give_is_named(card: Path, tiny_gguf: Gguf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.tensorrt.passes.scaled_residual.SCALE", 2.0**-5)  # as another version of ours might
    report = verify_package(card, reference=tiny_gguf("gemma_published"))
    assert isinstance(report, DeviceReport) and report.again is not None
    assert report.again.differing == ("the graph for tensorrt-rtx 1.7",)
    assert not report.passed and "differs in the graph for tensorrt-rtx 1.7: FAILED" in report.text()


def test_every_tier_has_its_weights_in_the_plan_once(tiny_gguf: Gguf, tmp_path: Path) -> None:
    pytest.importorskip("tensorrt_rtx", reason="needs the rtx extra: tensorrt-rtx-cu13")
    wide = replace(LLAMA, hidden=512, feed_forward=1024, heads=8, head_dim=64)
    build_tiny(tiny_gguf(wide), tmp_path / "wide.edge", "fp16", target="a10", context=64)
    record = record_of(tmp_path / "wide.edge")
    assert [profile.name for profile in record.graphs[0].profiles] == ["prefill", "decode"]
    assert record.plan is not None and "keeps a copy" not in record.plan.note
    facts = plan_facts(tmp_path / "wide.edge" / record.plan.path)
    weights = sum(tensor.bytes for tensor in manifest_of(tmp_path / "wide.edge").tensors)
    assert facts is not None and facts.weights_bytes < 1.25 * weights


@pytest.mark.parametrize(
    ("context", "message"),
    [
        (513, "a context of 513, the model has 512. Use --ctx-size 512"),
        (2, "caches for a context of 2, the least is 32. Use --ctx-size 32"),
    ],
)
def test_a_context_that_cannot_be_is_refused_before_any_work(
    tiny_gguf: Gguf, tmp_path: Path, context: int, message: str
) -> None:
    tasks: list[str] = []
    with pytest.raises(RequestError, match=re.escape(message)):
        build_tiny(tiny_gguf("llama"), tmp_path / "m.edge", target="orin-nx-16", context=context, progress=Recorder(tasks))
    assert tasks == []
    assert not list(tmp_path.iterdir())


def test_activations_beyond_float16_are_refused_with_their_node(
    tiny_gguf: Gguf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        engines.tensorrt.backend, "largest_value", lambda *words: LargestValue(70_000.0, "/layers.1/ffn_add/Add")
    )
    with pytest.raises(BuildError, match=r"activations reach 70,000 at /layers\.1/ffn_add/Add, float16 holds 65,504"):
        build_tiny(tiny_gguf("llama"), tmp_path / "m.edge", target="orin-nx-16", context=64)
    assert not list(tmp_path.iterdir())


def test_a_kind_of_engine_that_the_target_lacks_is_refused_before_any_work(tiny_gguf: Gguf, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--engine tensorrt-rtx: orin-nx-16 runs tensorrt"):
        build_tiny(tiny_gguf("llama"), tmp_path / "m.edge", target="orin-nx-16", engine="tensorrt-rtx")
    assert not list(tmp_path.iterdir())


def test_a_missing_library_is_said_before_anything_is_exported(
    tiny_gguf: Gguf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(kind: str) -> str:
        raise LibraryMissing("TensorRT-RTX is not installed")

    tasks: list[str] = []
    monkeypatch.setattr(engines.tensorrt.backend, "need_library", missing)
    with pytest.raises(LibraryMissing):
        build_tiny(tiny_gguf("llama"), tmp_path / "m.edge", target="a10", progress=Recorder(tasks))
    assert tasks == []
    assert not list(tmp_path.iterdir())


class Recorder:
    """A progress that keeps the names of tasks."""

    def __init__(self, tasks: list[str]) -> None:
        self._tasks = tasks

    def start(self, task: str, total: int, unit: str) -> None:
        self._tasks.append(task)

    def advance(self, n: int = 1) -> None:
        pass

    def done(self) -> None:
        pass


def test_a_builder_over_the_memory_is_refused_and_leaves_nothing(
    tiny_gguf: Gguf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorrt_rtx", reason="needs the rtx extra: tensorrt-rtx-cu13")
    monkeypatch.setattr(engines.tensorrt.backend, "machine_memory", lambda: replace(machine_memory(), available=1 << 28))
    with pytest.raises(BudgetError, match=r"the builder takes about .* --ignore-budget"):
        build_tiny(tiny_gguf("llama"), tmp_path / "m.edge", target="a10", context=64)
    assert not list(tmp_path.iterdir())


def test_a_builder_that_fails_leaves_nothing(tiny_gguf: Gguf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorrt_rtx", reason="needs the rtx extra: tensorrt-rtx-cu13")

    def fail(*words: object) -> None:
        raise BuildError("the builder was killed")

    monkeypatch.setattr(engines.tensorrt.backend, "build_plan", fail)
    with pytest.raises(BuildError, match="killed"):
        build_tiny(tiny_gguf("llama"), tmp_path / "m.edge", target="a10", context=64)
    assert not list(tmp_path.iterdir())


def test_int8_activations_that_hold_the_limits_are_kept_to_be_tried_first(
    tiny_gguf: Gguf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines.tensorrt.backend, "measure_int8_inputs", lambda *words: Int8Inputs(0.001, 0.99, 1.0, True))
    build_tiny(tiny_gguf("llama"), tmp_path / "m.edge", "int8", target="orin-nx-16", context=64)
    record = record_of(tmp_path / "m.edge")
    kinds = [(graph.since, graph.activations) for graph in record.graphs]
    assert kinds == [("10.3", "float16"), ("10.15", "float16"), ("10.3", "int8"), ("10.15", "int8")]
    assert len({graph.sha256 for graph in record.graphs}) == 4
    assert "are kept, to be tried first" in record.note


def test_int8_activations_that_do_not_are_left_out_with_their_figures(
    tiny_gguf: Gguf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines.tensorrt.backend, "measure_int8_inputs", lambda *words: Int8Inputs(0.85, 0.5, 2.2, False))
    report = build_tiny(tiny_gguf("llama"), tmp_path / "m.edge", "int8", target="orin-nx-16", context=64)
    record = record_of(tmp_path / "m.edge")
    assert {graph.activations for graph in record.graphs} == {"float16"}
    assert sorted(path.name for path in (tmp_path / "m.edge/engine/graphs").iterdir()) == [
        "tensorrt-10.15.onnx", "tensorrt-10.3.onnx", "weights.data",
    ]  # fmt: skip
    assert "KL 0.85" in record.note and "left out" in record.note and record.note in report.text()


def test_int8_activations_are_measured_on_text(tiny_gguf: Gguf, tmp_path: Path) -> None:
    build_tiny(tiny_gguf("llama"), tmp_path / "m.edge", "int8", target="orin-nx-16", context=64)
    note = record_of(tmp_path / "m.edge").note
    assert note.startswith("graphs with int8 activations and static scales (KL ") and "over 512 tokens" in note


def test_the_command_prints_the_step_that_is_left_and_gives_it_as_json(
    edge: Edge, tiny_gguf: Gguf, folder: Path, tmp_path: Path
) -> None:
    words = ("build", tiny_gguf("llama"), "--target", "orin-nx-16", "--ctx-size", "64", "--verify-tokens", "64", "--force")
    out = tmp_path / "board.edge"
    done = edge.run(*words, "-o", out)
    assert "the last step runs on the device: copy board.edge there, then: edge build board.edge --finish" in done.stdout
    done = edge.run(*words, "-o", out, "--json")
    assert json.loads(done.stdout)["next_step"].endswith("edge build board.edge --finish")
    done = edge.run("build", out)
    assert done.returncode == 2 and f"The last step of a package: edge build {out} --finish" in done.stderr


def test_a_full_disk_is_said_before_anything_is_written(
    tiny_gguf: Gguf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks: list[str] = []
    monkeypatch.setattr("shutil.disk_usage", lambda place: SimpleNamespace(free=10_000))
    with pytest.raises(BuildError, match=r"building it takes up to .* of disk, 10\.0 kB are free there"):
        build_tiny(tiny_gguf("llama"), tmp_path / "m.edge", target="orin-nx-16", context=64, progress=Recorder(tasks))
    assert tasks == []
    assert not list(tmp_path.iterdir())


def test_what_stands_there_is_named(card: Path, tiny_gguf: Gguf) -> None:
    with pytest.raises(BuildError, match=r"stands there already \(int4 for a10\)\. Replace it with --force"):
        build_tiny(tiny_gguf("llama"), card)


def test_packages_for_gpus_are_named_after_their_target(edge: Edge, tiny_gguf: Gguf, tmp_path: Path) -> None:
    words = ("build", tiny_gguf("llama"), "--ctx-size", "64", "--verify-tokens", "64")
    for target in ("cpu", "orin-nx-16"):
        edge.run(*words, "--target", target, cwd=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["llama-orin-nx-16.edge", "llama.edge"]


def test_a_build_that_is_to_be_finished_elsewhere_is_refused_before_any_work(
    edge: Edge, tiny_gguf: Gguf, tmp_path: Path
) -> None:
    line = edge.refuse("build", tiny_gguf("llama"), "--target", "orin-nx-16", "--finish", cwd=tmp_path)
    assert line.startswith("edge: --finish: the last step is done on the orin-nx-16, and here is ")
    assert not list(tmp_path.iterdir())


def test_a_package_where_a_model_belongs_is_told_so(edge: Edge, card: Path) -> None:
    for words in (("export", card, "-o", "a.onnx"), ("verify", card, "--reference", card)):
        assert "is a package, and here a model is asked for" in edge.refuse(*words)
