"""Logits of given text, row by row: what verification, perplexity and calibration compare.

Owns: the page tables of one sequence. Needs: contract, pages, an executor. Never: sampling, other sequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge import contract
from edge.executors.base import Executor, StepInput
from edge.pages.fit import fit_pool
from edge.pages.geometry import next_border, page_groups, pages_for
from edge.pages.moves import pack_moves
from edge.pages.pool import Pool
from edge.pages.sequence import SequencePages
from edge.presets import PRESETS, PresetName
from edge.spec import ModelSpec

_SLAB_BYTES = 1 << 21
_Step = tuple[int, int, np.ndarray, np.ndarray]  # begin, end, page table, page moves


def teacher_pool_bytes(spec: ModelSpec, tokens: int, preset: PresetName = "exact") -> int:
    """Pool that one sequence of `tokens` tokens takes; with `exact` nothing behind a window is freed."""
    groups = page_groups(spec, PRESETS[preset])
    if PRESETS[preset].seals:
        return fit_pool(groups, tokens, 1, _SLAB_BYTES).pool_bytes
    return sum(pages_for(tokens) * group.open.bytes for group in groups)


@dataclass(frozen=True, slots=True)
class Teacher:
    """Feeds a given sequence through an executor whose pool is at least teacher_pool_bytes(spec, max_tokens, preset)."""

    executor: Executor
    spec: ModelSpec
    max_tokens: int
    chunk: int = contract.SEAL_TOKENS  # tokens a step: the executor's limit of step tokens and of logit rows
    preset: PresetName = "exact"  # what sealed pages are kept in

    def rows(self, ids: Sequence[int], singly: int = 0) -> Iterator[np.ndarray]:
        """Float32 [n, vocabulary] for consecutive runs of rows of `ids`, all of them in the end; valid until the next one.

        The last `singly` tokens go one by one, as decoding does it. ExecutorError where numbers are not finite.
        """
        assert 0 < len(ids) <= self.max_tokens
        spans = self._spans(len(ids), singly)
        for begin, end, table, moves in self._sealing(spans) if PRESETS[self.preset].seals else self._fixed(spans):
            output = self.executor.run(
                StepInput(
                    token_ids=np.asarray(ids[begin:end], dtype=np.int32),
                    query_start=np.array([0, end - begin], dtype=np.int32),
                    kv_len=np.array([end], dtype=np.int32),
                    page_table=table,
                    page_moves=moves,
                    logit_rows=np.arange(end - begin, dtype=np.int32),
                )
            )
            for error in output.errors().values():
                raise error
            yield output.logits

    def _spans(self, count: int, singly: int) -> Iterator[tuple[int, int]]:
        """First and last position of each step, the last exclusive."""
        begin = 0
        while begin < count:
            end = min(count, next_border(begin), begin + self.chunk)
            if end > count - singly:
                end = max(begin + 1, min(end, count - singly))
            yield begin, end
            begin = end

    def _fixed(self, spans: Iterator[tuple[int, int]]) -> Iterator[_Step]:
        table = self._page_table()
        for begin, end in spans:
            yield begin, end, table, np.empty((0, 4), np.int32)

    def _sealing(self, spans: Iterator[tuple[int, int]]) -> Iterator[_Step]:
        """With pages as the runtime has them, in a pool of their own count."""
        groups = page_groups(self.spec, PRESETS[self.preset])
        pool = Pool(fit_pool(groups, self.max_tokens, 1, _SLAB_BYTES))
        pages = SequencePages(pool, groups, pages_for(self.max_tokens))
        for begin, end in spans:
            with pool.reserve(pages.step_extents(end)) as lease:
                words, moves = pages.place(end, lease)
                yield begin, end, words[:, None], pack_moves(moves)
                lease.commit()
            pages.commit(words, end)

    def _page_table(self) -> np.ndarray:
        """int32 [groups, 1, pages, 2]: extents one after another, every page of every group present."""
        pages = pages_for(self.max_tokens)
        groups = page_groups(self.spec, PRESETS["exact"])
        table = np.empty((len(groups), 1, pages, 2), dtype=np.int32)
        offset = 0
        for number, group in enumerate(groups):
            for page in range(pages):
                for side, extent in enumerate((group.open.key, group.open.value)):
                    table[number, 0, page, side] = contract.page_word(contract.PAGE_FORMATS[extent.page_format], offset)
                    offset += extent.bytes
        return table


@contextmanager
def open_teacher(folder: Path, spec: ModelSpec, tokens: int, preset: PresetName = "exact") -> Iterator[Teacher]:
    """The CPU engine in `folder` with room for one sequence of `tokens` tokens and logits for every row of a chunk."""
    from edge.executors.native import NativeExecutor, available_threads
    from edge.manifest import Limits

    limits = Limits(tokens, contract.SEAL_TOKENS, 1, contract.SEAL_TOKENS)
    pool_bytes = teacher_pool_bytes(spec, tokens, preset)
    executor = NativeExecutor.open(folder, spec, limits, pool_bytes=pool_bytes, threads=available_threads())
    try:
        yield Teacher(executor, spec, tokens, preset=preset)
    finally:
        executor.close()
