"""The plan of an engine for a GPU: which memory counts, what its build takes, what each preset would allow."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.build_memory import MARGIN_BYTES, build_step, builder_bytes, limits_at_hand
from edge.devices import DeviceProfile, EngineKind, Gpu, load_device
from edge.machine import DeviceNow
from edge.pages.linear import linear_bytes
from edge.spec import LayerSpec, ModelSpec, RopeSpec
from edge.target_plan import TargetPlan, Weights, plan_target, workspace_bytes

SPEC = ModelSpec(
    name="m", architecture="gemma3", vocab_size=262144, hidden_size=640, intermediate_size=2048, num_heads=4, num_kv_heads=1,
    head_dim=256, layers=tuple(LayerSpec(0 if i % 6 == 5 else 512, 0) for i in range(18)),
    ropes=(RopeSpec(256, 1e4, ()),), context_length=32768,
    norm_epsilon=1e-6, activation="gelu_tanh", attention_scale=0.0625, embedding_scale=25.0, qk_norm=True, post_norms=True,
    tied_head=True,
)  # fmt: skip
WEIGHTS = Weights(stored=260_000_000, read=260_000_000)
GB = 10**9


def plan(
    target: str,
    kind: EngineKind | None = None,
    *,
    weights: Weights = WEIGHTS,
    context: int = 4096,
    here: int = 16 * GB,
    now: DeviceNow | None = None,
    is_built: bool = False,
    profile: DeviceProfile | None = None,
) -> TargetPlan:
    profile = profile or load_device(target)
    return plan_target(
        profile, kind or profile.engines[0], SPEC, weights, context=context, longest_context=SPEC.context_length, here=here,
        now=now, is_built=is_built,
    )  # fmt: skip


def gpu_of(target: str) -> Gpu:
    gpu = load_device(target).gpu
    assert gpu is not None
    return gpu


def test_a_board_has_one_memory_for_all_that_runs() -> None:
    found, gpu = plan("orin-nano-8"), gpu_of("orin-nano-8")
    rows = dict(found.memory.rows)
    assert list(rows) == ["weights", "pool", "workspace", "host", "runtime", "system"]
    assert rows["pool"] == linear_bytes(SPEC, 4096, 1)
    assert (rows["host"], rows["runtime"], rows["system"]) == (51_500_000, gpu.runtime_bytes, gpu.system_bytes)
    assert found.memory.total == sum(rows.values())
    assert found.memory.available == gpu.memory_bytes - gpu.reserved_bytes
    assert (found.unified, found.host_apart) == (True, 0)
    assert set(found.estimates) == {"workspace", "host", "runtime", "system"}
    assert not any(basis.startswith("estimate") for basis in found.estimates.values())


def test_a_card_has_its_own_memory_and_the_process_lives_beside_it() -> None:
    found = plan("a10")
    assert list(dict(found.memory.rows)) == ["weights", "pool", "workspace", "runtime"]
    assert (found.unified, found.host_apart) == (False, 51_500_000)
    assert set(found.estimates) == {"workspace", "runtime"}


def test_the_machine_itself_is_planned_with_what_it_has_now() -> None:
    now = DeviceNow(memory=3 * GB, host=3 * GB, source="MemAvailable of this machine")
    found = plan("orin-nano-8", now=now)
    assert found.memory.available == 3 * GB
    assert found.available_source == "MemAvailable of this machine"
    assert "system" not in dict(found.memory.rows)  # it is out of MemAvailable already
    assert "system" not in found.estimates
    assert found.build is not None
    assert found.build.available == 3 * GB


def test_weights_that_do_not_fit_leave_no_context() -> None:
    found = plan("orin-nano-4", weights=Weights(4 * GB, 4 * GB))
    assert not found.memory.fits
    assert found.memory.largest_context is None
    assert {preset.largest_context for preset in found.presets} == {None}
    assert found.build is not None
    assert found.build.fits is False


def test_a_card_engine_is_built_here_and_a_board_engine_there() -> None:
    here = plan("a10", here=1 * GB).build
    assert here is not None
    assert (here.on_device, here.available, here.fits, here.limit) == (False, 1 * GB, False, None)
    there, gpu = plan("orin-nano-8").build, gpu_of("orin-nano-8")
    assert there is not None
    assert (there.on_device, there.available) == (True, gpu.usable_bytes)
    assert there.total == builder_bytes("tensorrt", WEIGHTS.stored) + gpu.build.workspace_bytes
    assert there.fits
    elsewhere = plan("a10", "tensorrt").build  # the memory of the card's host is not known
    assert elsewhere is not None
    assert (elsewhere.on_device, elsewhere.available, elsewhere.fits) == (True, None, None)
    with_it = plan("a10", "tensorrt", now=DeviceNow(23 * GB, 8 * GB, "the card")).build
    assert with_it is not None
    assert (with_it.available, with_it.fits) == (8 * GB, True)
    assert plan("a10", is_built=True).build is None


def test_on_a_board_the_limit_of_the_builder_binds_too() -> None:
    gpu = gpu_of("orin-nano-8")
    step = build_step("tensorrt", gpu, 10**9, here=0, there=100 * GB, limits=gpu.build)
    assert step.limit == gpu.build.tactic_dram_bytes
    assert step.limit < step.total < 100 * GB
    assert step.fits is False


@pytest.mark.parametrize(("weights", "context"), [(96_200_000, 2048), (260_000_000, 2048)])
@pytest.mark.parametrize("target", ["orin-nano-4", "jetson-generic"])
def test_the_models_of_the_catalog_are_built_on_the_smallest_board_and_run_there(
    target: str, weights: int, context: int
) -> None:
    usable = gpu_of(target).usable_bytes
    for now in (None, DeviceNow(usable, usable, "MemAvailable of this machine")):
        found = plan(target, weights=Weights(weights, weights), context=context, now=now)
        assert found.memory.fits and found.build is not None and found.build.fits


def test_on_the_device_itself_a_builder_leaves_some_of_what_is_available() -> None:
    known, limits = load_device("orin-nano-8"), gpu_of("orin-nano-8").build
    assert limits_at_hand(known, 100 * GB) == limits
    assert limits_at_hand(known, 3 * GB).tactic_dram_bytes == 3 * GB - MARGIN_BYTES
    assert limits_at_hand(known, 3 * GB).workspace_bytes == limits.workspace_bytes
    nothing = limits_at_hand(known, MARGIN_BYTES - 1)
    assert (nothing.workspace_bytes, nothing.tactic_dram_bytes) == (0, 0)
    step = plan("orin-nano-8", now=DeviceNow(2 * GB, 2 * GB, "now")).build
    assert step is not None and (step.limit, step.fits) == (2 * GB - MARGIN_BYTES, False)


def test_a_board_that_nobody_knows_is_limited_by_what_it_has_and_a_card_by_its_profile() -> None:
    assert limits_at_hand(load_device("jetson-generic"), 60 * GB).tactic_dram_bytes == 60 * GB - MARGIN_BYTES
    assert limits_at_hand(load_device("cuda-sm86"), 24 * GB) == gpu_of("cuda-sm86").build
    step = plan("jetson-generic", weights=Weights(4 * GB, 4 * GB), now=DeviceNow(60 * GB, 60 * GB, "now")).build
    assert step is not None and step.fits


def test_what_else_uses_a_card_is_counted_whether_it_is_here_or_not() -> None:
    here = plan("cuda-sm86", now=DeviceNow(6 * GB, 16 * GB, "memory of the card, in use or not"))
    assert here.memory.system == plan("cuda-sm86").memory.system == gpu_of("cuda-sm86").system_bytes > 0


def test_each_jetpack_is_told_whether_its_tensorrt_does_the_last_step() -> None:
    steps = plan("orin-nano-8").jetpacks
    assert [(step.jetpacks[0], step.jetpacks[-1], step.tensorrt, step.finishes) for step in steps] == [
        ("6.1", "6.2.2", "10.3.0", False),
        ("7.2", "7.2.1", "10.16.2", True),
    ]
    assert plan("a10").jetpacks == plan("orin-nano-8", is_built=True).jetpacks == ()


def test_a_builder_is_planned_above_what_was_measured() -> None:
    for weights, measured in ((97_000_000, 1.02 * GB), (275_000_000, 1.66 * GB)):
        assert measured < builder_bytes("tensorrt-rtx", weights) < 1.15 * measured
        assert builder_bytes("tensorrt", weights) > builder_bytes("tensorrt-rtx", weights)


def test_presets_say_what_this_version_can_do_and_what_the_paged_engine_would() -> None:
    found = plan("orin-nano-8")
    assert [(preset.preset, preset.layout, preset.ready) for preset in found.presets] == [
        ("exact", "linear", True), ("exact", "paged", False), ("safe", "paged", False), ("balanced", "paged", False),
        ("tight", "paged", False),
    ]  # fmt: skip
    assert found.presets[0].pool == found.memory.pool
    assert found.presets[0].largest_context == found.memory.largest_context
    assert [preset.bits for preset in found.presets[1:]] == [16, 6.75, 4.75, 4.0]


@given(memory=st.integers(700_000_000, 3 * GB), context=st.integers(1, 32768))
def test_a_coarser_preset_never_allows_less(memory: int, context: int) -> None:
    found = plan("orin-nano-8", context=context, now=DeviceNow(memory, memory, "now"))
    largest = [preset.largest_context or 0 for preset in found.presets]
    assert largest == sorted(largest)
    assert all(0 <= size <= SPEC.context_length for size in largest)
    if context <= largest[0]:
        assert found.memory.fits


def test_speed_is_estimated_for_every_power_mode_at_the_full_context() -> None:
    short, long = plan("orin-nano-8", context=512), plan("orin-nano-8", context=32768)
    assert [speed.mode for speed in short.speeds] == ["7W", "15W", "25W", "MAXN_SUPER"]
    for near, far in zip(short.speeds, long.speeds, strict=True):
        assert near.decode > far.decode
    assert [speed.mode for speed in plan("a10").speeds] == ["full"]


def test_activations_grow_with_the_step_the_context_and_the_vocabulary() -> None:
    base = workspace_bytes(SPEC, 4096, 128)
    assert base > workspace_bytes(SPEC, 4096, 64)
    assert base > workspace_bytes(SPEC, 2048, 128)
    assert base - workspace_bytes(replace(SPEC, vocab_size=1), 4096, 128) == 128 * 2 * (SPEC.vocab_size - 1)
