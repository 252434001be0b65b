"""One step through the engine. Owns: reserve, run, publish cuts, commit, count. Needs: pool, executor, prefix cache. Never:
decides, ends a request."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edge.errors import ExecutorError
from edge.executors.base import Executor, StepInput, StepOutput
from edge.pages.geometry import GroupPages
from edge.pages.pool import Pool
from edge.pages.prefix_cache import PrefixCache
from edge.request import Request
from edge.scheduler.state import Chunk, StepPlan
from edge.stats import PoolWatch, StepCounts
from edge.steady import Steady
from edge.step import pack_step

_log = logging.getLogger(__name__)
Ran = tuple[StepOutput | ExecutorError, float]  # what came of a step, and its seconds in the executor


@dataclass(frozen=True, slots=True)
class StepRunner:
    """The way of a step that was planned. Where the engine fails, pages that were reserved go back and no sequence is longer;
    the requests of the step are then to be ended."""

    executor: Executor
    pool: Pool
    groups: tuple[GroupPages, ...]
    prefix_cache: PrefixCache
    counts: StepCounts
    watch: PoolWatch

    def run(self, step_plan: StepPlan, requests: Sequence[Request], *, publishes: bool) -> Ran:
        """A step with `requests[b]` in chunk b. With `publishes` the cut points in its chunks go to the prefix cache."""
        chunks = step_plan.chunks
        reads = [request.wanted_pages(chunk.start, chunk.end) for request, chunk in zip(requests, chunks, strict=True)]
        watch = [request.watch.rows(chunk.start, chunk.end) for request, chunk in zip(requests, chunks, strict=True)]
        with self.pool.reserve(step_plan.extents) as lease:
            step, moves = pack_step(chunks, [request.sequence for request in requests], lease, reads, watch)
            started = time.perf_counter()
            try:
                output = self.executor.run(step)
            except ExecutorError as error:
                return error, time.perf_counter() - started
            seconds = time.perf_counter() - started
            lease.commit()
        self._learn(step, requests, output)  # before anything is published: what read fewer pages is not
        if publishes and any(chunk.cuts for chunk in chunks):
            self._publish(chunks, requests, step.page_table, output)
        for b, (request, chunk) in enumerate(zip(requests, chunks, strict=True)):
            request.sequence.pages.commit(step.page_table[:, b], chunk.end)
            if watch[b]:
                request.watch.add(chunk.start, chunk.end, output.mass[:, b])
        self.counts.add_step(step_plan, requests, seconds)
        self.counts.add_moves(moves)
        if (news := self.watch.news(self.pool.used_bytes - self.pool.cached_bytes)) is not None:
            _log.warning(news)
        return output, seconds

    def repeat(self, steady: Steady) -> Ran:
        """One more step like the last."""
        started = time.perf_counter()
        try:
            output = self.executor.run(steady.advance())
        except ExecutorError as error:
            return error, time.perf_counter() - started
        seconds = time.perf_counter() - started
        steady.commit()
        self.counts.add_decode(len(steady.requests), seconds)
        self._learn(steady.step, steady.requests, output)
        return output, seconds

    def _learn(self, step: StepInput, requests: Sequence[Request], output: StepOutput) -> None:
        """What rows left out that did not read all pages."""
        if not len(step.read_pages):
            return
        self.counts.add_reads(step, output, [group.window for group in self.groups])
        rows = zip(requests, step.kv_len.tolist(), step.read_pages.tolist(), output.omitted.tolist(), strict=True)
        for request, length, read, omitted in rows:
            request.learn(length, read, omitted)

    def _publish(self, chunks: Sequence[Chunk], requests: Sequence[Request], tables: np.ndarray, output: StepOutput) -> None:
        """Before commit frees what is behind a window. `tables` int32 [groups, B, max_pages, 2]."""
        broken = output.errors()
        for b, (request, chunk) in enumerate(zip(requests, chunks, strict=True)):
            if b not in broken:
                sequence = request.sequence
                for cut in filter(sequence.has_read_all, chunk.cuts):
                    self.prefix_cache.publish(sequence.token_ids, sequence.pages.cut(cut, tables[:, b]))
