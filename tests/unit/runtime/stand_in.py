"""A stand-in for an engine that really reads its pages. Owns: StandIn, Bench, make_bench."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from edge.config import InferenceConfig
from edge.contract import EMPTY, FORMAT_SHIFT, PAGE_FORMATS, PAGE_TOKENS, SEAL_TOKENS, WATCH_ROWS, word_offset
from edge.executors.base import NOT_WATCHED, StepInput, StepOutput
from edge.manifest import Limits
from edge.pages.fit import cut_pool, fit_pool
from edge.pages.geometry import GroupPages, page_groups
from edge.policies import PolicyName, peak_share
from edge.presets import PRESETS, PresetName
from edge.runtime import Runtime
from edge.spec import LayerSpec, ModelSpec, RopeSpec

VOCABULARY = 40
SEALED = 10000  # what sealing does to a number of this model: it is another one for those who read it then


def make_spec(windows: Sequence[int], head_dim: int = 4) -> ModelSpec:
    """One KV head of 4 channels, so an extent of one layer is 256 bytes: room for 32 numbers."""
    return ModelSpec(
        name="stand-in",
        architecture="llama",
        vocab_size=VOCABULARY,
        hidden_size=8,
        intermediate_size=8,
        num_heads=2,
        num_kv_heads=1,
        head_dim=head_dim,
        layers=tuple(LayerSpec(window, 0) for window in windows),
        ropes=(RopeSpec(head_dim, 10000.0, ()),),
        context_length=4096,
        norm_epsilon=1e-5,
        activation="silu",
        attention_scale=0.5,
        embedding_scale=1.0,
        qk_norm=False,
        post_norms=False,
        tied_head=True,
    )


def logits_after(windows: Sequence[int], tokens: Sequence[int], seals: bool) -> np.ndarray:
    """What a model whose layer groups have these windows (0: all) says after `tokens`: random, but a function of what the
    last of them sees, in the form in which it sees it, and of nothing else."""
    position = len(tokens) - 1
    stored = [token + SEALED * (seals and is_read_sealed(p, position)) for p, token in enumerate(tokens)]
    seen = [tuple(stored[-window:] if window else stored) for window in sorted(set(windows))]
    return np.random.default_rng(abs(hash(tuple(seen)))).normal(size=VOCABULARY).astype(np.float32)


def is_read_sealed(position: int, query: int) -> bool:
    """The contract's words: pages that end at or before 128 * (t // 128 - 1), but for the first."""
    page = position // PAGE_TOKENS
    return page > 0 and (page + 1) * PAGE_TOKENS <= SEAL_TOKENS * (query // SEAL_TOKENS - 1)


def greedy_answer(windows: Sequence[int], prompt: Sequence[int], count: int, seals: bool = False) -> list[int]:
    """The answer without a runtime."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(logits_after(windows, tokens, seals).argmax()))
    return tokens[len(prompt) :]


@dataclass
class StandIn:
    """Writes the token into the K extent and the position into the V extent of each group, reads both back through the page
    table, and fails where a page is missing, freed too late, in another form than the contract says, or holds another
    position."""

    spec: ModelSpec
    groups: tuple[GroupPages, ...]
    pool: np.ndarray  # uint8
    limits: Limits
    steps: list[StepInput] = field(default_factory=list)
    before_run: Callable[[int], None] = lambda step: None  # called with the number of the step
    spoil: Callable[[np.ndarray], None] = lambda logits: None
    breaks: Callable[[StepInput], set[int]] = lambda step: set()  # sequences of the step that are not finite
    is_closed: bool = False
    references: Callable[[int], int] = lambda offset: 1  # holders of the extent there

    def run(self, step: StepInput) -> StepOutput:
        assert not self.is_closed
        if len(step.kv_len):
            self._check(step)
        else:
            assert len(step.page_moves) and not len(step.token_ids) and step.query_start.tolist() == [0]
        self.steps.append(step)
        self.before_run(len(self.steps) - 1)
        for _, _, source, target in step.page_moves.tolist():
            old, new = self._numbers(source), self._numbers(target)
            new[:] = old + SEALED * (source >> FORMAT_SHIFT != target >> FORMAT_SHIFT)  # a copy is what it was
            if self.references(word_offset(source)) == 1:
                old[:] = -1  # whoever reads it still reads wrong
        seen = []
        for b in range(len(step.kv_len)):
            begin, end = step.query_start[b], step.query_start[b + 1]
            first = step.kv_len[b] - (end - begin)
            for row in range(begin, end):
                position = first + row - begin
                for group in range(len(self.spec.groups)):
                    words = step.page_table[group, b, position // PAGE_TOKENS].tolist()
                    assert all(self.references(word_offset(word)) == 1 for word in words), "written, though others hold it"
                    self._slot(step, group, b, position, 0)[:] = step.token_ids[row]
                    self._slot(step, group, b, position, 1)[:] = position
            seen += [(b, first + row - begin) for row in range(begin, end) if row in step.logit_rows]
        logits = np.stack([self._logits(step, b, position) for b, position in seen]) if seen else np.empty((0, VOCABULARY))
        self.spoil(logits)
        broken = self.breaks(step)
        flags = np.array([b in broken for b in range(len(step.kv_len))], np.int32)
        return StepOutput(logits, flags, mass=self._mass(step) if len(step.watch) else NOT_WATCHED)

    def cancel(self) -> None:
        raise AssertionError("nobody asked for this")

    def close(self) -> None:
        self.is_closed = True

    def _logits(self, step: StepInput, b: int, position: int) -> np.ndarray:
        seen = []
        for group, window in enumerate(self.spec.group_windows):
            positions = range(max(0, position - window + 1) if window else 0, position + 1)
            for p in positions:
                kept = int(self._slot(step, group, b, p, 1)[0])
                is_fp16 = step.page_table[group, b, p // PAGE_TOKENS, 1] >> FORMAT_SHIFT == 0
                assert kept % SEALED == p and (kept < SEALED) == is_fp16, "another position, or another form, lies there"
            seen.append(tuple(int(self._slot(step, group, b, p, 0)[0]) for p in positions))
        return np.random.default_rng(abs(hash(tuple(seen)))).normal(size=VOCABULARY).astype(np.float32)

    def _mass(self, step: StepInput) -> np.ndarray:
        """Of each watched row some numbers for the pages that it sees, which are its position's and the page's own."""
        mass = np.zeros(step.page_table.shape[:3], np.int64)
        for b, count in enumerate(step.watch.tolist()):
            assert 0 <= count <= min(WATCH_ROWS, step.query_start[b + 1] - step.query_start[b])
            for position in range(step.kv_len[b] - count, step.kv_len[b]):
                for group, window in enumerate(self.spec.group_windows):
                    first = max(0, position - window + 1) // PAGE_TOKENS if window else 0
                    for page in range(first, position // PAGE_TOKENS + 1):
                        mass[group, b, page] += (page * 37 + position * (group + 3)) % 101
        return mass

    def _slot(self, step: StepInput, group: int, b: int, position: int, side: int) -> np.ndarray:
        word = step.page_table[group, b, position // PAGE_TOKENS, side]
        assert word != EMPTY, f"position {position} has no page in group {group}"
        place = position % PAGE_TOKENS
        return self._numbers(int(word))[place : place + 1]

    def _numbers(self, word: int) -> np.ndarray:
        """The int32 [32 tokens] that this model keeps in an extent."""
        start = word_offset(word)
        return self.pool[start : start + 4 * PAGE_TOKENS].view(np.int32)

    def _check(self, step: StepInput) -> None:
        counts = np.diff(step.query_start)
        first = step.kv_len - counts
        assert all(array.dtype == np.int32 and array.flags.c_contiguous for array in _arrays(step))
        assert len(step.token_ids) == step.query_start[-1] <= self.limits.max_step_tokens
        assert len(counts) <= self.limits.max_sequences and len(step.logit_rows) <= self.limits.max_logit_rows
        assert (counts >= 1).all() and (first // SEAL_TOKENS == (step.kv_len - 1) // SEAL_TOKENS).all(), "a border is crossed"
        self._check_moves(step)
        for group, b in itertools.product(range(len(self.spec.groups)), range(len(counts))):
            window = self.spec.group_windows[group]
            pages = np.flatnonzero(step.page_table[group, b, :, 0] != EMPTY)
            oldest = max(0, first[b] - window + 1) if window else 0
            expected = np.arange(oldest // PAGE_TOKENS, -(-step.kv_len[b] // PAGE_TOKENS))
            np.testing.assert_array_equal(pages, expected, err_msg="pages behind the window, or beyond the end")
            for page, side in itertools.product(pages.tolist(), (0, 1)):
                word = int(step.page_table[group, b, page, side])
                assert word >> FORMAT_SHIFT in self._formats(group, side, is_read_sealed(page * PAGE_TOKENS, int(first[b])))

    def _check_moves(self, step: StepInput) -> None:
        """Moves seal what stands in the table behind them, and nothing that anybody holds lies in two places or overlaps.
        Sequences may hold the same page of the same text, wholly in front of what they add."""
        assert step.page_moves.shape == (len(step.page_moves), 4)
        begins = (step.kv_len - np.diff(step.query_start)).tolist()
        sizes: dict[int, int] = {}  # by word
        places: dict[int, list[tuple[int, int, int, int]]] = {}
        for group, b, page, side in np.argwhere(step.page_table != EMPTY).tolist():
            word = int(step.page_table[group, b, page, side])
            sizes[word] = self._bytes(group, side, word)
            places.setdefault(word, []).append((group, b, page, side))
        for word, shared in places.items():
            assert len(shared) <= self.references(word_offset(word))
            assert len({(group, page, side) for group, _, page, side in shared}) == 1
            assert len(shared) == 1 or all((page + 1) * PAGE_TOKENS <= begins[b] for _, b, page, _ in shared)
        for group, side, source, target in step.page_moves.tolist():
            assert source >> FORMAT_SHIFT in self._formats(group, side, False)
            assert target >> FORMAT_SHIFT in self._formats(group, side, True)
            assert target in step.page_table[group, :, :, side] and self.references(word_offset(target)) == 1
            for g, b, page, s in places.get(source, []):
                assert (g, s) == (group, side)
                if page * PAGE_TOKENS >= begins[b]:  # in its place stands a page that the same sequence adds
                    assert target in step.page_table[group, b]
                else:  # another sequence reads it still
                    assert self.references(word_offset(source)) > 1
            sizes[source] = self._bytes(group, side, source)
        spans = sorted((word_offset(word), size) for word, size in sizes.items())
        assert all(a + size <= b for (a, size), (b, _) in itertools.pairwise(spans)), "two extents overlap"

    def _formats(self, group: int, side: int, is_sealed: bool) -> set[int]:
        """Formats in which a page may stand: of sealed ones those of a policy, of the preset, and behind."""
        pages = self.groups[group]
        kinds = pages.levels[pages.base - bool(pages.raised_share) :] if is_sealed else (pages.open,)
        return {PAGE_FORMATS[(kind.key, kind.value)[side].page_format] for kind in kinds}

    def _bytes(self, group: int, side: int, word: int) -> int:
        kinds = [(level.key, level.value)[side] for level in self.groups[group].levels]
        return next(kind.bytes for kind in kinds if PAGE_FORMATS[kind.page_format] == word >> FORMAT_SHIFT)


def _arrays(step: StepInput) -> tuple[np.ndarray, ...]:
    return step.token_ids, step.query_start, step.kv_len, step.page_table, step.page_moves, step.logit_rows


@dataclass(frozen=True)
class Bench:
    """A runtime over a stand-in."""

    runtime: Runtime
    executor: StandIn
    windows: tuple[int, ...]
    seals: bool = False

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
        return greedy_answer(self.windows, prompt, count, self.seals)


def make_bench(
    windows: Sequence[int] = (0, 40, 40, 40),
    context: int = 640,
    sequences: int = 4,
    step_tokens: int = 256,
    chunk: int = 128,
    pool_share: float = 1.0,
    preset: PresetName = "exact",
    prefix_cache: bool = True,
    policy: PolicyName = "uniform",
    lowest: PresetName = "exact",
    deterministic: bool = False,
) -> Bench:
    """`pool_share` 1.0: a pool that fits the load; below: one that is too small for it. A preset that seals needs heads of 32
    channels: 2,048 bytes an extent of one layer, sealed 512 to 1,280."""
    seals = PRESETS[preset].seals
    spec = make_spec(windows, 32 if seals else 4)
    config = InferenceConfig(context, step_tokens, chunk, 4096, "fitted", 0.92, preset, prefix_cache, policy, deterministic)
    groups = page_groups(spec, PRESETS[preset], PRESETS[lowest], peak_share(policy))
    size = fit_pool(groups, context, sequences, 4096, chunk)
    if pool_share < 1.0:
        size = cut_pool(groups, int(size.pool_bytes * pool_share), 4096, chunk)
    limits = Limits(context, step_tokens, sequences, sequences)
    executor = StandIn(spec, groups, np.full(size.pool_bytes, 0xEE, np.uint8), limits)
    runtime = Runtime(spec, executor, size, limits, config, preset, policy, lowest)
    executor.references = runtime._pool.references
    return Bench(runtime, executor, tuple(windows), seals)
