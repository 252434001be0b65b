"""Sequences whose tokens are given, side by side in one engine. Owns: FedSequence, the pool that they share. Needs: pages, an
executor. Never: sampling, what the logits mean.

Pages are reserved, sealed and freed by the very code of the runtime (edge/pages), so what is measured is what a request gets.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from edge.config import InferenceConfig
from edge.contract import EMPTY, PAGE_TOKENS, SEAL_TOKENS, word_offset
from edge.errors import BudgetError
from edge.executors.base import Executor
from edge.kv_eval.forms import Form
from edge.pages.fit import LARGEST_POOL, PoolSize, peak_extents, slab_bytes_for, slabs_for
from edge.pages.geometry import ExtentKind, GroupPages, next_border, pages_for, sealed_end
from edge.pages.policy import read_zones, seal_levels
from edge.pages.pool import NOTHING, Pool
from edge.pages.read_budget import ReadAll, ReadBudget, Reading
from edge.pages.sequence import SequencePages
from edge.policies import BY_ATTENTION, PolicyName
from edge.presets import PRESETS, PresetName
from edge.pressure import Relief, first_demotions, run_relief
from edge.request import SequenceTokens
from edge.scheduler.state import Chunk
from edge.spec import ModelSpec
from edge.stats import ReadCounts
from edge.step import pack_step
from edge.units import human_bytes
from edge.watch import PromptWatch

FLOOR = "floor"  # the control: `exact`, the last bit of each fp16 number flipped where presets would seal


@dataclass(slots=True)
class Nudge:
    """Changes pages by the least that fp16 can, 0.05 to 0.1 % of a number, where and when a preset would seal them.

    What that does to the logits is the floor of a measurement: an engine that rounds its activations answers every change,
    however small, with other roundings, and no preset can be more alike than this.
    """

    memory: np.ndarray  # uint8 [pool_bytes], the pool's
    groups: tuple[GroupPages, ...]
    done: int = 1  # pages before this one are changed; page 0 never is

    def apply(self, words: np.ndarray, position: int) -> None:
        """Before a step at `position`; `words` int32 [groups, max_pages, 2] of the sequence."""
        end = sealed_end(position)
        for group, pages in enumerate(self.groups):
            for index in range(self.done, end):
                for word, kind in zip(words[group, index].tolist(), (pages.open.key, pages.open.value), strict=True):
                    if word != EMPTY:
                        begin = word_offset(word)
                        self.memory[begin : begin + kind.bytes].view(np.uint16)[:] ^= 1
        self.done = max(self.done, end)


@dataclass(slots=True)
class FedSequence:
    """One sequence of one form; others may stand beside it in its engine."""

    executor: Executor
    pool: Pool
    groups: tuple[GroupPages, ...]
    tokens: SequenceTokens
    policy: PolicyName = "uniform"
    seconds: float = 0.0  # that the last `feed` was in the engine
    nudge: Nudge | None = None  # of the control; None: pages are as the engine wrote them
    budget: ReadBudget = field(default_factory=ReadAll)  # of tokens whose logits are asked for
    reads: ReadCounts = field(default_factory=ReadCounts)
    _reading: Reading = field(init=False)
    _watch: PromptWatch = field(init=False)

    def __post_init__(self) -> None:
        self._reading = Reading(self.budget)
        self._watch = PromptWatch.of(self.policy, self.groups, 0, 0)

    def begin(self, zones: bytes = b"", prompt_tokens: int = 0) -> None:
        """Forgets everything; what is fed next, up to `end_prefill`, is a prompt whose pages have these zones, a byte each. Its
        length is to be known before where it is fed step by step; `feed_all` knows it."""
        self.release()
        pages, row = self.tokens.pages, read_zones(zones)
        max_pages = pages.words().shape[1]
        pages.assign(row, seal_levels(self.policy, row, self.groups[0].base, max_pages * PAGE_TOKENS))
        self._watch = PromptWatch.of(self.policy, self.groups, prompt_tokens, max_pages)

    def end_prefill(self) -> None:
        """The prompt ends here: its pages get the levels that an answer finds. It was fed as `begin` says."""
        pages = self.tokens.pages
        while self._watch.is_due(self.length) and (left := self._watch.demotions(pages, self.groups)):
            chosen = first_demotions(pages, left, self.pool.room(self.groups, NOTHING))
            assert chosen, "the pool has room for pages in both forms"
            run_relief(Relief({pages: chosen}, {}), self.pool, self.groups, self.executor)
        if self.policy in BY_ATTENTION:
            pages.assign(pages.zones().copy(), seal_levels(self.policy, pages.zones(), self.groups[0].base))

    def read(self, budget: ReadBudget) -> None:
        """From now on tokens whose logits are asked for have this budget."""
        self.budget, self._reading = budget, Reading(budget)

    @property
    def length(self) -> int:
        """Tokens computed."""
        return self.tokens.pages.length

    def feed(self, ids: Sequence[int], rows: int) -> np.ndarray:
        """Computes `ids` behind what is there, at most as far as the next seal border. Logits float32 [rows, vocabulary] of the
        last `rows` of them, valid until the next call on this engine. ExecutorError, BudgetError.

        With a budget they go one by one where logits are asked for, as the tokens of an answer do."""
        if isinstance(self.budget, ReadAll) or not rows:
            return self._run(ids, rows, 0)
        found, seconds = [], 0.0
        for place, token in enumerate(ids):
            wanted = self._reading.wanted(self.length + 1)
            logits = self._run([token], 1, wanted)
            found += [logits.copy()] if place >= len(ids) - rows else []
            seconds += self.seconds
        self.seconds = seconds
        return np.concatenate(found)

    def _run(self, ids: Sequence[int], rows: int, read_pages: int) -> np.ndarray:
        """One step."""
        pages, begin = self.tokens.pages, self.length
        end = begin + len(ids)
        assert ids and end <= next_border(begin) and 0 <= rows <= len(ids)
        if self.nudge is not None:
            self.nudge.apply(pages.words(), begin)
        self.tokens.token_ids[begin:] = ids
        with self.pool.reserve(pages.step_extents(end)) as lease:
            chunk, rows_watched = Chunk(self.tokens.owner, begin, end, True, ()), self._watch.rows(begin, end)
            step, _ = pack_step([chunk], [self.tokens], lease, (read_pages,), (rows_watched,))
            step = replace(step, logit_rows=np.arange(len(ids) - rows, len(ids), dtype=np.int32))
            started = time.perf_counter()
            output = self.executor.run(step)
            self.seconds = time.perf_counter() - started
            for error in output.errors().values():
                raise error
            lease.commit()
        pages.commit(step.page_table[:, 0], end)
        if rows_watched:
            self._watch.add(begin, end, output.mass[:, 0])
        if read_pages:
            omitted = float(output.omitted[0])
            self._reading = self._reading.after(read_pages, omitted)
            self.reads.add(step.page_table[:, 0], [group.window for group in self.groups], read_pages, omitted)
        return output.logits

    def feed_all(self, ids: Sequence[int]) -> None:
        """Computes `ids`, chunk by chunk, without logits."""
        start, max_pages = self.length, self.tokens.pages.words().shape[1]
        self._watch = PromptWatch.of(self.policy, self.groups, start + len(ids), max_pages)
        for begin, end in spans(start, start + len(ids)):
            self.feed(ids[begin - start : end - start], 0)

    def pretend(self, length: int, memory: np.ndarray) -> None:
        """Holds pages as if it had `length` tokens, all zero, in `memory`, uint8 [pool_bytes] of the pool: for a clock."""
        pages = self.tokens.pages
        for begin, end in spans(self.length, length):
            with self.pool.reserve(pages.step_extents(end)) as lease:
                words, _ = pages.place(end, lease)
                lease.commit()
            pages.commit(words, end)
            self.tokens.token_ids += [0] * (end - begin)
        for each in pages.extents_between(0, len(memory)):
            begin = word_offset(int(pages.words()[each.group, each.page, int(each.is_value)]))
            memory[begin : begin + pages.extent_kind(each).bytes] = 0

    def can_rewind(self, length: int) -> bool:
        """Whether nothing of what a query at `length` reads is gone or changed."""
        return self.tokens.pages.can_rewind(length)

    def rewind(self, length: int) -> None:
        """Forgets the tokens from `length` on; no seal border that was passed may lie behind it."""
        self.tokens.pages.rewind(length)
        del self.tokens.token_ids[length:]
        self._reading = Reading(self.budget)  # what comes is another answer

    def release(self) -> None:
        """Frees all pages; the next tokens begin anew."""
        self.tokens.pages.release()
        self.tokens.token_ids.clear()
        self._reading = Reading(self.budget)
        if self.nudge is not None:
            self.nudge.done = 1

    def bytes_by_format(self) -> dict[str, int]:
        """Bytes of the extents that the sequence holds now, scales and minima counted."""
        return self.tokens.pages.bytes_by_format()


def spans(begin: int, end: int) -> Iterator[tuple[int, int]]:
    """The positions begin .. end - 1 cut at seal borders."""
    while begin < end:
        stop = min(end, next_border(begin))
        yield begin, stop
        begin = stop


def reading_forms(forms: Sequence[Form], budget: ReadBudget) -> tuple[Form, ...]:
    """Those of `forms` that are run a second time, with this budget: presets by themselves."""
    if isinstance(budget, ReadAll):
        return ()
    return tuple(form for form in forms if PRESETS[form.preset].seals and not form.raises)


def reading_name(preset: PresetName) -> str:
    """Of a preset's sequence that has the budget."""
    return f"{preset}, budget"


def shared_pool(spec: ModelSpec, forms: Sequence[Form], tokens: int, budget: ReadBudget | None = None) -> PoolSize:
    """A pool for one sequence of `tokens` tokens of each form, one more of those that a read budget concerns, and FLOOR.
    BudgetError where a page table does not reach so far."""
    extents: Counter[ExtentKind] = Counter()
    for form in (*forms, *reading_forms(forms, budget or ReadAll()), Form("exact")):
        extents += peak_extents(form.groups(spec), tokens, 1)
    slab = slab_bytes_for(extents, InferenceConfig.load().slab_bytes)
    size = PoolSize(slabs_for(extents, slab) * slab, slab)
    if size.pool_bytes > LARGEST_POOL:
        raise BudgetError(
            f"pool: {human_bytes(size.pool_bytes)} for one sequence of {tokens} tokens of each form, a page table reaches "
            f"{human_bytes(LARGEST_POOL)}. Use less context, fewer presets or fewer policies"
        )
    return size


@contextmanager
def open_sequences(
    folder: Path,
    spec: ModelSpec,
    forms: Sequence[Form],
    tokens: int,
    *,
    budget: ReadBudget | None = None,
    threads: int | None = None,
    isa: str = "auto",
) -> Iterator[dict[str, FedSequence]]:
    """The CPU engine in `folder` with one empty sequence of up to `tokens` tokens of each form, one more (`reading_name`) of
    those that a read budget concerns, one for FLOOR, and logits for every token of a chunk."""
    from edge.executors.native import NativeExecutor, available_threads
    from edge.manifest import Limits

    limits = Limits(tokens, SEAL_TOKENS, 1, SEAL_TOKENS)
    budget = budget or ReadAll()
    size = shared_pool(spec, forms, tokens, budget)
    executor = NativeExecutor.open(
        folder, spec, limits, pool_bytes=size.pool_bytes, threads=threads or available_threads(), isa=isa
    )
    try:
        yield fed_sequences(executor, executor.pool, spec, forms, tokens, Pool(size), budget)
    finally:
        executor.close()


def fed_sequences(
    executor: Executor,
    memory: np.ndarray,
    spec: ModelSpec,
    forms: Sequence[Form],
    tokens: int,
    pool: Pool,
    budget: ReadBudget | None = None,
) -> dict[str, FedSequence]:
    """Empty sequences in a pool of `shared_pool(spec, forms, tokens, budget)` in `memory`, by their names: one of each form,
    those with the budget, and FLOOR."""
    fed: dict[str, FedSequence] = {}

    def add(name: str, form: Form) -> FedSequence:
        groups = form.groups(spec)
        sequence = SequenceTokens(len(fed), True, SequencePages(pool, groups, pages_for(tokens)))
        fed[name] = FedSequence(executor, pool, groups, sequence, form.policy)
        return fed[name]

    for form in forms:
        add(form.name, form)
    for form in reading_forms(forms, budget or ReadAll()):
        add(reading_name(form.preset), form).read(budget or ReadAll())
    floor = add(FLOOR, Form("exact"))
    floor.nudge = Nudge(memory, floor.groups)
    return fed
