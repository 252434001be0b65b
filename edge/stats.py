"""What a runtime has done so far, in numbers. Owns: RuntimeStats, StepCounts, PoolWatch. Needs: a step's plan.
Never: a clock, a log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from edge.contract import FORMAT_SHIFT, PAGE_FORMATS
from edge.executors.base import StepInput, StepOutput
from edge.pages.account import ZoneBytes
from edge.pages.moves import PageMove
from edge.pages.pool_counts import PoolCounts
from edge.pages.prefix_cache import PrefixCache
from edge.request import Request
from edge.scheduler.state import StepPlan
from edge.units import human_bytes


@dataclass(frozen=True, slots=True)
class RuntimeStats:
    """Since the runtime was opened. The seconds are those of the executor; of a step that mixes both kinds they are shared by
    tokens."""

    pool: PoolCounts
    bytes_by_zone: ZoneBytes  # of pages that sequences hold now
    last_bytes_by_zone: ZoneBytes  # of those of the last request that ended, at its end
    table_bytes: int  # page tables of all sequences that may run at once
    steps: int
    prefill_tokens: int  # of prompts, and of answers that were computed again
    prefill_seconds: float
    decode_tokens: int
    decode_seconds: float
    loop_seconds: float  # of these steps outside the executor: planning, packing, sampling
    preemptions: int
    pages_sealed: int  # K and V of 32 tokens of one layer group
    pages_demoted: int  # of these, times that one went to fewer bits
    bytes_moved: int  # written by page moves: sealed and demoted pages in their new form, and copies
    bytes_copied: int  # of these, pages copied as they are
    prefix_hits: int  # sequences that began with a cut of the prefix cache
    prefix_hit_tokens: int  # that they did not compute
    prefix_cuts: int  # in the cache now
    pages_read: int  # sealed pages of layer groups without a window that tokens with a read budget read
    pages_skipped: int  # and did not read
    probes: int  # tokens that read all pages to tell what others leave out
    omitted: float | None  # of the softmax, 0 to 1, that is: mean of the probes; None without any


@dataclass(slots=True)
class ReadCounts:
    """What tokens with a read budget did."""

    tokens: int = 0  # that read some pages
    read: int = 0  # sealed pages, of layer groups without a window
    skipped: int = 0
    probes: int = 0  # tokens that read all
    omitted: float = 0.0  # sum over probes

    def add(self, words: np.ndarray, windows: Sequence[int], read_pages: int, omitted: float) -> None:
        """A token whose page-table words are int32 [groups, max_pages, 2]; the rest as in StepInput and StepOutput."""
        if read_pages < 0:
            self.probes += 1
            self.omitted += omitted
            return
        self.tokens += 1
        formats = words[:, 1:, 0] >> FORMAT_SHIFT  # of an empty word -1; the first page is always read
        for group, window in enumerate(windows):
            if not window:
                sealed = int((formats[group] > PAGE_FORMATS["fp16"]).sum())
                self.read += min(sealed, read_pages)
                self.skipped += max(0, sealed - read_pages)

    @property
    def mean_omitted(self) -> float | None:
        """Share of the softmax, 0 to 1; None without a probe."""
        return self.omitted / self.probes if self.probes else None


@dataclass(slots=True)
class StepCounts:
    """The same, as they grow: each step writes to them, so they are not frozen."""

    steps: int = 0
    prefill_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_tokens: int = 0
    decode_seconds: float = 0.0
    loop_seconds: float = 0.0
    preemptions: int = 0
    pages_sealed: int = 0
    pages_demoted: int = 0
    bytes_moved: int = 0
    bytes_copied: int = 0
    last_bytes_by_zone: ZoneBytes = field(default_factory=dict)
    reads: ReadCounts = field(default_factory=ReadCounts)

    def add_step(self, step_plan: StepPlan, requests: Sequence[Request], seconds: float) -> None:
        """A step that took the executor so long; `requests` are those of its chunks, before they got their tokens."""
        tokens = decode = 0
        for request, chunk in zip(requests, step_plan.chunks, strict=True):
            tokens += chunk.end - chunk.start
            decode += chunk.is_last and chunk.end - chunk.start == 1 and bool(request.token_ids)
        self.steps += 1
        self.prefill_tokens += tokens - decode
        self.prefill_seconds += seconds * (tokens - decode) / tokens
        self.decode_tokens += decode
        self.decode_seconds += seconds * decode / tokens

    def add_decode(self, tokens: int, seconds: float) -> None:
        """A step that decoded one token of each of so many sequences."""
        self.steps += 1
        self.decode_tokens += tokens
        self.decode_seconds += seconds

    def add_moves(self, moves: Sequence[PageMove]) -> None:
        """The page moves of a step."""
        for move in moves:
            self.bytes_moved += move.bytes
            if move.is_copy:
                self.bytes_copied += move.bytes
            elif move.seals and not move.is_value:  # its V moves with it
                self.pages_sealed += 1

    def add_reads(self, step: StepInput, output: StepOutput, windows: Sequence[int]) -> None:
        """What the rows of a step left out that were to read some pages; `windows` of the layer groups."""
        for b in np.flatnonzero(step.read_pages).tolist():
            self.reads.add(step.page_table[:, b], windows, int(step.read_pages[b]), float(output.omitted[b]))

    def with_memory(self, pool: PoolCounts, by_zone: ZoneBytes, table_bytes: int, prefix_cache: PrefixCache) -> RuntimeStats:
        return RuntimeStats(
            pool=pool,
            bytes_by_zone=by_zone,
            last_bytes_by_zone=self.last_bytes_by_zone,
            table_bytes=table_bytes,
            steps=self.steps,
            prefill_tokens=self.prefill_tokens,
            prefill_seconds=self.prefill_seconds,
            decode_tokens=self.decode_tokens,
            decode_seconds=self.decode_seconds,
            loop_seconds=self.loop_seconds,
            preemptions=self.preemptions,
            pages_sealed=self.pages_sealed,
            pages_demoted=self.pages_demoted,
            bytes_moved=self.bytes_moved,
            bytes_copied=self.bytes_copied,
            prefix_hits=prefix_cache.hits,
            prefix_hit_tokens=prefix_cache.hit_tokens,
            prefix_cuts=len(prefix_cache),
            pages_read=self.reads.read,
            pages_skipped=self.reads.skipped,
            probes=self.reads.probes,
            omitted=self.reads.mean_omitted,
        )


@dataclass(slots=True)
class PoolWatch:
    """Tells once that a pool is nearly full. One that holds all that may be asked of it may fill up: that is no news."""

    pool_bytes: int
    needed_bytes: int  # for all that may be asked of it
    share: float  # of the pool, 0 to 1; more in use is news
    _is_told: bool = False

    def news(self, held_bytes: int) -> str | None:
        """What is to be told where sequences use so much."""
        is_full = held_bytes > self.share * self.pool_bytes
        if self._is_told or not is_full or self.pool_bytes >= self.needed_bytes:
            return None
        self._is_told = True
        return f"pool: {100 * held_bytes / self.pool_bytes:.0f} % of {human_bytes(self.pool_bytes)} in use"
