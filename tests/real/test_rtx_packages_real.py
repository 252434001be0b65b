"""Real models really built for an A10 by TensorRT-RTX, on whatever machine this is: what can be checked without that card."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge.engine_record import EngineRecord
from edge.package import Package
from edge.progress import SilentProgress
from engines.build_report import BuildReport
from engines.tensorrt.plan_file import plan_facts

pytestmark = [pytest.mark.build, pytest.mark.real]  # fixtures that are asked for by name mark nothing

BUILDS = {"smollm2_a10_build": 2_000_000_000, "gemma3_a10_build": 4_000_000_000}  # bytes that the builder may take


@pytest.fixture(params=BUILDS)
def build(request: pytest.FixtureRequest) -> BuildReport:
    report: BuildReport = request.getfixturevalue(request.param)
    return report


@pytest.fixture
def package(build: BuildReport) -> Package:
    return Package.open(build.path)


def record_of(package: Package) -> EngineRecord:
    assert package.manifest.engine is not None
    return package.manifest.engine


def plan_of(package: Package) -> Path:
    plan = record_of(package).plan
    assert plan is not None
    return package.file(plan.path)


def test_the_plan_is_for_the_card_and_by_the_library_that_the_manifest_names(package: Package) -> None:
    import tensorrt_rtx

    record, facts = record_of(package), plan_facts(plan_of(package))
    assert facts is not None and record.plan is not None
    assert (record.kind, record.sm, facts.sms) == ("tensorrt-rtx", "8.6", ("8.6",))
    assert record.plan.version == facts.version == tensorrt_rtx.__version__
    assert facts.plan_bytes == plan_of(package).stat().st_size == package.manifest.files[record.plan.path].bytes
    package.verify_hashes(SilentProgress())


def assert_weights_are_there_once(package: Package) -> None:
    """Were int4 blocks or int8 rows widened to float16, or kept for each profile, the plan would be 2 to 4 times as large."""
    weights = sum(tensor.bytes for tensor in package.manifest.tensors)
    assert plan_of(package).stat().st_size < 1.25 * weights


def test_the_plan_is_hardly_larger_than_the_packed_weights(package: Package) -> None:
    assert_weights_are_there_once(package)


def test_other_tiers_have_plans_of_their_size_too(smollm2_wide_a10_build: BuildReport) -> None:
    package = Package.open(smollm2_wide_a10_build.path, force=True)  # few tokens are no verdict to rely on
    assert_weights_are_there_once(package)
    assert package.manifest.verdicts.graph is not None and package.manifest.verdicts.graph.tokens >= 120


def test_the_builder_stays_within_its_memory(build: BuildReport, request: pytest.FixtureRequest) -> None:
    assert build.builder is not None
    assert build.builder.peak_bytes < BUILDS[request.node.callspec.params["build"]]
    assert build.builder.peak_bytes < build.planned_bytes


def test_the_graph_that_the_builder_got_proved_equal_to_its_weights(package: Package) -> None:
    verdicts = package.manifest.verdicts
    assert verdicts.engine is None and verdicts.graph is not None and verdicts.tier is not None
    assert verdicts.graph.passed and verdicts.tier.passed
    assert verdicts.graph.tokens > max(package.spec.group_windows)


def test_inputs_outputs_and_profiles_are_those_of_linear_caches(package: Package) -> None:
    (graph,) = record_of(package).graphs
    spec, context = package.spec, package.manifest.limits.max_context
    cache = (1, spec.num_kv_heads, context, spec.head_dim)
    shapes = {tensor.name: (tensor.dtype, tensor.shape) for tensor in graph.tensors}
    for index in range(len(spec.layers)):
        for name in ("past_key", "past_value", "present_key", "present_value"):
            assert shapes.pop(f"{name}.{index}") == ("float16", cache)
    assert shapes == {
        "input_ids": ("int64", (1, -1)),
        "position_ids": ("int64", (1, -1)),
        "write_indices": ("int64", (1,)),
        "attention_mask": ("bool", (1, 1, -1, context)),
        "logit_rows": ("int64", (-1,)),
        "logits": ("float16", (1, -1, spec.vocab_size)),
    }
    prefill, decode = graph.profiles
    assert (prefill.name, decode.name) == ("prefill", "decode")
    assert prefill.shapes["input_ids"].largest == (1, package.manifest.limits.max_step_tokens)
    assert (decode.shapes["input_ids"].tuned, decode.shapes["input_ids"].largest) == ((1, 1), (1, 8))


def test_the_plan_holds_the_very_weights_of_the_model(package: Package, request: pytest.FixtureRequest) -> None:
    """Some columns of an int4 matrix stand in the plan as packed nibbles, as the source has them."""
    from calibration.tiers import load_tier
    from engines.portable.convert import Converter
    from engines.sources.base import open_source

    name = "smollm2_gguf" if "smollm2" in str(package.path) else "gemma3_gguf"
    source = open_source(request.getfixturevalue(name))
    converter = Converter(source, load_tier("int4"), requantise=False, dtype="float16")
    tensor = next(t.name for t in package.manifest.tensors if t.kind == "int4")
    plan = plan_of(package).read_bytes()
    for row in range(0, 64, 8):
        values = converter.rows(tensor, row, row + 1).values
        assert not isinstance(values, np.ndarray)
        nibbles = (values.quants[0].astype(np.int16) - 8 & 15).astype(np.uint8)
        packed = (nibbles[0::2] | nibbles[1::2] << 4).tobytes()
        assert packed in plan, (tensor, row)
