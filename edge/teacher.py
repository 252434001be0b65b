"""Logits of given text, row by row: what verification, perplexity and calibration compare.

Owns: a fixed page table for one sequence. Needs: contract, an executor. Never: sampling, the pool's policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge import contract
from edge.executors.base import Executor, StepInput
from edge.pages.geometry import page_groups, pages_for
from edge.spec import ModelSpec


def teacher_pool_bytes(spec: ModelSpec, tokens: int) -> int:
    """Pool that one sequence of `tokens` tokens takes when nothing behind a window is freed."""
    pages = pages_for(tokens)
    return sum(pages * group.page_bytes for group in page_groups(spec))


@dataclass(frozen=True, slots=True)
class Teacher:
    """Feeds a given sequence through an executor whose pool is at least teacher_pool_bytes(spec, max_tokens)."""

    executor: Executor
    spec: ModelSpec
    max_tokens: int
    chunk: int = contract.SEAL_TOKENS  # tokens a step: the executor's limit of step tokens and of logit rows

    def rows(self, ids: Sequence[int], singly: int = 0) -> Iterator[np.ndarray]:
        """Float32 [n, vocabulary] for consecutive runs of rows of `ids`, all of them in the end; valid until the next one.

        The last `singly` tokens go one by one, as decoding does it. ExecutorError where numbers are not finite.
        """
        assert 0 < len(ids) <= self.max_tokens
        table = self._page_table()
        no_moves = np.empty((0, 4), dtype=np.int32)
        begin = 0
        while begin < len(ids):
            border = (begin // contract.SEAL_TOKENS + 1) * contract.SEAL_TOKENS
            end = min(len(ids), border, begin + self.chunk)
            if end > len(ids) - singly:
                end = max(begin + 1, min(end, len(ids) - singly))
            count = end - begin
            output = self.executor.run(
                StepInput(
                    token_ids=np.asarray(ids[begin:end], dtype=np.int32),
                    query_start=np.array([0, count], dtype=np.int32),
                    kv_len=np.array([end], dtype=np.int32),
                    page_table=table,
                    page_moves=no_moves,
                    logit_rows=np.arange(count, dtype=np.int32),
                )
            )
            for error in output.errors().values():
                raise error
            yield output.logits
            begin = end

    def _page_table(self) -> np.ndarray:
        """int32 [groups, 1, pages, 2]: extents one after another, every page of every group present."""
        pages = pages_for(self.max_tokens)
        groups = page_groups(self.spec)
        table = np.empty((len(groups), 1, pages, 2), dtype=np.int32)
        offset = 0
        for number, group in enumerate(groups):
            for page in range(pages):
                for side, extent in enumerate((group.key, group.value)):
                    table[number, 0, page, side] = contract.page_word(contract.PAGE_FORMATS[extent.page_format], offset)
                    offset += extent.bytes
        return table


@contextmanager
def open_teacher(folder: Path, spec: ModelSpec, tokens: int) -> Iterator[Teacher]:
    """The CPU engine in `folder` with room for one sequence of `tokens` tokens and logits for every row of a chunk."""
    from edge.executors.native import NativeExecutor, available_threads
    from edge.manifest import Limits

    limits = Limits(tokens, contract.SEAL_TOKENS, 1, contract.SEAL_TOKENS)
    pool_bytes = teacher_pool_bytes(spec, tokens)
    executor = NativeExecutor.open(folder, spec, limits, pool_bytes=pool_bytes, threads=available_threads())
    try:
        yield Teacher(executor, spec, tokens)
    finally:
        executor.close()
