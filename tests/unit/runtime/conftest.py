"""A stand-in for an engine that really reads its pages."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from edge.config import InferenceConfig
from edge.contract import EMPTY, OFFSET_MASK, OFFSET_UNIT, PAGE_TOKENS, SEAL_TOKENS
from edge.executors.base import StepInput, StepOutput
from edge.manifest import Limits
from edge.pages.geometry import cut_pool, fit_pool
from edge.runtime import Runtime
from edge.spec import LayerSpec, ModelSpec, RopeSpec

VOCABULARY = 40


def make_spec(windows: Sequence[int]) -> ModelSpec:
    """One KV head of 4 channels, so an extent of one layer is 256 bytes: room for 32 numbers."""
    return ModelSpec(
        name="stand-in",
        architecture="llama",
        vocab_size=VOCABULARY,
        hidden_size=8,
        intermediate_size=8,
        num_heads=2,
        num_kv_heads=1,
        head_dim=4,
        layers=tuple(LayerSpec(window, 0) for window in windows),
        ropes=(RopeSpec(4, 10000.0, ()),),
        context_length=4096,
        norm_epsilon=1e-5,
        activation="silu",
        attention_scale=0.5,
        embedding_scale=1.0,
        qk_norm=False,
        post_norms=False,
        tied_head=True,
    )


def logits_after(windows: Sequence[int], tokens: Sequence[int]) -> np.ndarray:
    """What a model whose layer groups have these windows (0: all) says after `tokens`: random, but a function of what the
    last of them sees, and of nothing else."""
    seen = [tuple(tokens[-window:] if window else tokens) for window in sorted(set(windows))]
    return np.random.default_rng(abs(hash(tuple(seen)))).normal(size=VOCABULARY).astype(np.float32)


def greedy_answer(windows: Sequence[int], prompt: Sequence[int], count: int) -> list[int]:
    """The answer without a runtime."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(logits_after(windows, tokens).argmax()))
    return tokens[len(prompt) :]


@dataclass
class StandIn:
    """Writes the token into the K extent and the position into the V extent of each group, reads both back through the page
    table, and fails where a page is missing, freed too late, or holds another position."""

    spec: ModelSpec
    pool: np.ndarray  # uint8
    limits: Limits
    steps: list[StepInput] = field(default_factory=list)
    before_run: Callable[[int], None] = lambda step: None  # called with the number of the step
    spoil: Callable[[np.ndarray], None] = lambda logits: None
    breaks: Callable[[StepInput], set[int]] = lambda step: set()  # sequences of the step that are not finite
    is_closed: bool = False

    def run(self, step: StepInput) -> StepOutput:
        assert not self.is_closed
        self._check(step)
        self.steps.append(step)
        self.before_run(len(self.steps) - 1)
        seen = []
        for b in range(len(step.kv_len)):
            begin, end = step.query_start[b], step.query_start[b + 1]
            first = step.kv_len[b] - (end - begin)
            for row in range(begin, end):
                position = first + row - begin
                for group in range(len(self.spec.groups)):
                    self._slot(step, group, b, position, 0)[:] = step.token_ids[row]
                    self._slot(step, group, b, position, 1)[:] = position
            seen += [(b, first + row - begin) for row in range(begin, end) if row in step.logit_rows]
        logits = np.stack([self._logits(step, b, position) for b, position in seen]) if seen else np.empty((0, VOCABULARY))
        self.spoil(logits)
        broken = self.breaks(step)
        return StepOutput(logits, np.array([b in broken for b in range(len(step.kv_len))], np.int32))

    def cancel(self) -> None:
        raise AssertionError("nobody asked for this")

    def close(self) -> None:
        self.is_closed = True

    def _logits(self, step: StepInput, b: int, position: int) -> np.ndarray:
        seen = []
        for group, window in enumerate(self.spec.group_windows):
            positions = range(max(0, position - window + 1) if window else 0, position + 1)
            assert all(self._slot(step, group, b, p, 1)[0] == p for p in positions), "another position lies there"
            seen.append(tuple(int(self._slot(step, group, b, p, 0)[0]) for p in positions))
        return np.random.default_rng(abs(hash(tuple(seen)))).normal(size=VOCABULARY).astype(np.float32)

    def _slot(self, step: StepInput, group: int, b: int, position: int, side: int) -> np.ndarray:
        word = step.page_table[group, b, position // PAGE_TOKENS, side]
        assert word != EMPTY, f"position {position} has no page in group {group}"
        start = (int(word) & OFFSET_MASK) * OFFSET_UNIT + 4 * (position % PAGE_TOKENS)
        return self.pool[start : start + 4].view(np.int32)

    def _check(self, step: StepInput) -> None:
        counts = np.diff(step.query_start)
        first = step.kv_len - counts
        assert all(array.dtype == np.int32 and array.flags.c_contiguous for array in _arrays(step))
        assert len(step.token_ids) == step.query_start[-1] <= self.limits.max_step_tokens
        assert len(counts) <= self.limits.max_sequences and len(step.logit_rows) <= self.limits.max_logit_rows
        assert (counts >= 1).all() and (first // SEAL_TOKENS == (step.kv_len - 1) // SEAL_TOKENS).all(), "a border is crossed"
        words = step.page_table[step.page_table != EMPTY]
        assert len(np.unique(words)) == len(words), "two sequences share an extent"
        assert step.page_moves.shape == (0, 4)
        for group, b in itertools.product(range(len(self.spec.groups)), range(len(counts))):
            window = self.spec.group_windows[group]
            pages = np.flatnonzero(step.page_table[group, b, :, 0] != EMPTY)
            oldest = max(0, first[b] - window + 1) if window else 0
            expected = np.arange(oldest // PAGE_TOKENS, -(-step.kv_len[b] // PAGE_TOKENS))
            np.testing.assert_array_equal(pages, expected, err_msg="pages behind the window, or beyond the end")


def _arrays(step: StepInput) -> tuple[np.ndarray, ...]:
    return step.token_ids, step.query_start, step.kv_len, step.page_table, step.page_moves, step.logit_rows


@dataclass(frozen=True)
class Bench:
    """A runtime over a stand-in."""

    runtime: Runtime
    executor: StandIn
    windows: tuple[int, ...]

    def finish(self) -> dict[int, list[int]]:
        """Steps until nothing is left to do, and checks the pool at each; the tokens that came, by request."""
        tokens: dict[int, list[int]] = {}
        while self.runtime.has_work:
            for event in self.runtime.step():
                if event.token_id is not None:
                    tokens.setdefault(event.request_id, []).append(event.token_id)
            self.runtime.check()
        return tokens

    def answer(self, prompt: Sequence[int], count: int) -> list[int]:
        return greedy_answer(self.windows, prompt, count)


def make_bench(
    windows: Sequence[int] = (0, 40, 40, 40),
    context: int = 640,
    sequences: int = 4,
    step_tokens: int = 256,
    chunk: int = 128,
    pool_share: float = 1.0,
) -> Bench:
    """`pool_share` 1.0: a pool that fits the load; below: one that is too small for it."""
    spec = make_spec(windows)
    config = InferenceConfig(context, step_tokens, chunk, 4096, "fitted", 0.92)
    size = fit_pool(spec, context, sequences, 4096, chunk)
    if pool_share < 1.0:
        size = cut_pool(spec, int(size.pool_bytes * pool_share), 4096)
    limits = Limits(context, step_tokens, sequences, sequences)
    executor = StandIn(spec, np.full(size.pool_bytes, 0xEE, np.uint8), limits)
    return Bench(Runtime(spec, executor, size, limits, config), executor, tuple(windows))


@pytest.fixture(scope="session")
def bench_of() -> Callable[..., Bench]:
    return make_bench
