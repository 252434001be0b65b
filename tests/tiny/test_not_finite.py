"""Numbers that are not finite: which sequences of a step they end, and that the others do not notice."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from edge import contract
from edge.errors import ExecutorError

pytest.importorskip("edge._core", reason="needs the native core: pip install .")
pytest.importorskip("onnxruntime", reason="needs the build extra")

from built_engine import Built, random_ids

from edge.config import InferenceConfig
from edge.executors.base import StepInput, StepOutput
from edge.executors.cpu_plan import PLAN_FILE, WEIGHTS_FILE, CpuPlan
from edge.executors.native import NativeExecutor
from edge.executors.native_core import load_core
from edge.manifest import Limits
from edge.pages.fit import fit_pool
from edge.pages.geometry import page_groups
from edge.presets import PRESETS
from edge.runtime import Runtime
from edge.sampling import SamplingParams
from edge.teacher import teacher_pool_bytes

STRIP = 16  # tokens whose rows of the embedding lie together
PAGES = 2  # of every sequence


@pytest.mark.parametrize("isa", load_core().instruction_sets())
def test_a_weight_that_is_not_finite_ends_the_step_and_not_only_where_logits_are_read(
    build: Callable[[str, str], Built], tmp_path: Path, isa: str
) -> None:
    damaged = copied(build("llama_published", "fp16"), tmp_path)
    plan = CpuPlan.read(damaged.folder / PLAN_FILE)
    overwrite(damaged, next(step for step in plan.steps if step.op == "project").tensors["weight0"], np.float16(np.nan))
    with pytest.raises(ExecutorError, match=r"not finite.*edge verify$"):
        damaged.logits(random_ids(damaged.spec), isa=isa)


@pytest.mark.parametrize(
    ("vector", "value"),  # of 1e36 are scores that overflow; K saturates, and an angle of it has a cosine like any other
    [("q_norm", 1e36), *((vector, value) for vector in ("q_norm", "k_norm", "inv_freq") for value in (np.nan, np.inf))],
)
def test_a_vector_of_attention_that_makes_no_numbers_ends_the_step(
    build: Callable[[str, str], Built], tmp_path: Path, vector: str, value: float
) -> None:
    damaged = copied(build("gemma_published", "int4"), tmp_path)
    plan = CpuPlan.read(damaged.folder / PLAN_FILE)
    overwrite(damaged, [step for step in plan.steps if step.op == "attend"][-1].tensors[vector], np.float32(value))
    with pytest.raises(ExecutorError, match=r"not finite.*edge verify$"):
        damaged.logits(random_ids(damaged.spec))


@pytest.mark.parametrize("isa", load_core().instruction_sets())
@pytest.mark.parametrize("count", [1, 3, 40])  # tokens of a sequence: few rows, many rows, more than a page
@pytest.mark.parametrize("broken", [0, 1, 2])
def test_only_the_sequence_that_is_not_finite_is_flagged_and_its_neighbours_keep_their_bits(
    build: Callable[[str, str], Built], tmp_path: Path, isa: str, count: int, broken: int
) -> None:
    whole = build("llama_untied", "fp16")
    damaged = bad_tokens(whole, tmp_path, 2)
    good = [first_strip_ids(count, seed) for seed in range(3)]
    spoilt = [list(ids) for ids in good]
    spoilt[broken][count // 2] = 2 * STRIP
    with_bad = Steps(damaged, isa)
    output = with_bad.run(spoilt)
    assert output.not_finite.tolist() == [int(b == broken) for b in range(3)]
    assert not np.isfinite(output.logits.reshape(3, count, -1)[broken, count // 2]).any()
    expected = np.concatenate([whole.logits(ids, isa=isa) for ids in good]).reshape(3, count, -1)
    neighbours = [b for b in range(3) if b != broken]
    assert np.array_equal(output.logits.reshape(3, count, -1)[neighbours], expected[neighbours])
    # The pages that hold NaNs now are the next sequence's, which must not read what it has not written.
    again = with_bad.run(good)
    assert again.not_finite.tolist() == [0, 0, 0]
    assert np.array_equal(again.logits.reshape(3, count, -1), expected)
    with_bad.executor.close()


def test_a_request_that_is_not_finite_ends_alone_and_answers_beside_it_are_those_of_a_whole_package(
    build: Callable[[str, str], Built], tmp_path: Path
) -> None:
    whole = build("llama_untied", "fp16")
    prompts = [first_strip_ids(count, seed) for seed, count in enumerate((20, 170, 5))]
    with runtime(whole) as alone:
        answers = [[event.token_id for event in alone.generate(ids, SamplingParams(), 12)] for ids in prompts]
    unused = set(range(1, whole.spec.vocab_size // STRIP)) - {token // STRIP for answer in answers for token in answer if token}
    damaged = bad_tokens(whole, tmp_path, min(unused))
    bad = [*first_strip_ids(140, 3), min(unused) * STRIP, 7]  # in its second chunk
    with runtime(damaged) as together:
        first, broken, *others = (
            together.submit(ids, SamplingParams(), 12) for ids in (prompts[0], bad, prompts[1], prompts[2])
        )
        errors = []
        while together.has_work:
            errors += [event for event in together.step() if event.error]
            together.check()
        assert [request.token_ids for request in (first, *others)] == answers
        assert [event.request_id for event in errors] == [broken.id] and broken.token_ids == []
        assert "not finite" in str(errors[0].error)
        assert together.stats.pool.held_bytes == 0


def copied(built: Built, folder: Path) -> Built:
    shutil.copytree(built.folder, folder / "engine")
    return Built(folder / "engine", built.onnx, built.spec)


def overwrite(built: Built, tensor: str, values: np.generic | np.ndarray, skipped: int = 0) -> None:
    """Puts `values` behind the first `skipped` bytes of a tensor."""
    plan = CpuPlan.read(built.folder / PLAN_FILE)
    with (built.folder / WEIGHTS_FILE).open("r+b") as weights:
        weights.seek(next(t for t in plan.tensors if t.name == tensor).offset + skipped)
        weights.write(values.tobytes())


def bad_tokens(built: Built, folder: Path, number: int) -> Built:
    """A copy whose embedding has NaNs in one strip. Needs a head that is not tied, or every row of logits has them."""
    damaged = copied(built, folder)
    name = next(step for step in CpuPlan.read(built.folder / PLAN_FILE).steps if step.op == "embed").tensors["weight0"]
    strip = np.full((STRIP, built.spec.hidden_size), np.nan, np.float16)
    overwrite(damaged, name, strip, number * strip.nbytes)
    return damaged


def first_strip_ids(count: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(4, STRIP, count).tolist()


def runtime(built: Built) -> Runtime:
    limits = Limits(256, 384, 4, 4)
    config = InferenceConfig.load()
    pool = fit_pool(page_groups(built.spec, PRESETS["exact"]), limits.max_context, limits.max_sequences, 4096, 128)
    executor = NativeExecutor.open(built.folder, built.spec, limits, pool_bytes=pool.pool_bytes, threads=2)
    return Runtime(built.spec, executor, pool, limits, config)


class Steps:
    """Steps of three sequences that begin, each in the same pages every time."""

    def __init__(self, built: Built, isa: str) -> None:
        groups = len(built.spec.groups)
        stride = max(teacher_pool_bytes(built.spec, 32), 4096)
        extents = groups * 3 * PAGES * 2
        self.table = np.arange(extents, dtype=np.int32).reshape(groups, 3, PAGES, 2) * (stride // contract.OFFSET_UNIT)
        limits = Limits(64, 128, 3, 128)
        self.executor = NativeExecutor.open(built.folder, built.spec, limits, pool_bytes=stride * extents, threads=2, isa=isa)

    def run(self, sequences: Sequence[Sequence[int]]) -> StepOutput:
        """All rows' logits."""
        lengths = [len(ids) for ids in sequences]
        return self.executor.run(
            StepInput(
                token_ids=np.concatenate(sequences).astype(np.int32),
                query_start=np.array([0, *np.cumsum(lengths)], dtype=np.int32),
                kv_len=np.array(lengths, dtype=np.int32),
                page_table=self.table,
                page_moves=np.empty((0, 4), dtype=np.int32),
                logit_rows=np.arange(sum(lengths), dtype=np.int32),
            )
        )
