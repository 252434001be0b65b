"""The border between the loop and an engine. Owns: StepInput, StepOutput and the Executor protocol. Needs: numpy. Never:
how an engine computes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from edge.errors import ExecutorError

ALL_PAGES = np.empty(0, np.int32)  # of StepInput.read_pages
NOT_PROBED = np.empty(0, np.float32)  # of StepOutput.omitted
NOBODY = np.empty(0, np.int32)  # of StepInput.watch
NOT_WATCHED = np.empty((0, 0, 0), np.int64)  # of StepOutput.mass


@dataclass(frozen=True, slots=True)
class StepInput:  # the loop writes, executors read
    """One engine step over packed tokens of B sequences: T tokens, G layer groups. All arrays are C-contiguous int32.

    Sequence b owns rows query_start[b] .. query_start[b + 1] - 1 of `token_ids`. They stand at the absolute positions
    kv_len[b] - n .. kv_len[b] - 1 (n rows), and never lie on both sides of a seal border unless n is 1.
    A page that the step adds may stand where a page move takes one away: every layer moves before it appends. A step without
    sequences (T and B 0) has moves alone.
    A page behind a group's window is -1 in the table and is not read. The table may be the sequence's own, which later steps
    change: read it while `run` lasts.
    """

    token_ids: np.ndarray  # [T]
    query_start: np.ndarray  # [B + 1]
    kv_len: np.ndarray  # [B], tokens of each sequence after this step
    page_table: np.ndarray  # [G, B, max_pages, 2] (K, V) page-table words, -1 = empty; the state after the moves
    page_moves: np.ndarray  # [M, 4] group, 0 for K or 1 for V, source word, target word; done before a layer appends
    logit_rows: np.ndarray  # [R] rows of `token_ids` whose logits are wanted, ascending
    # [B], or empty: every row reads all pages. n > 0, of a sequence with one row: in layers without a window it reads at most n
    # of the pages whose K is sealed, the best by their bounds, beside the first page and those that are fp16. n < 0: it reads
    # all, and `omitted` tells what -n pages would have left out.
    read_pages: np.ndarray = field(default_factory=lambda: ALL_PAGES)
    watch: np.ndarray = field(default_factory=lambda: NOBODY)  # [B], or empty: the last rows, WATCH_ROWS at most, `mass` is of


@dataclass(frozen=True, slots=True)
class StepOutput:  # executors write, the loop reads
    """What a step gives; valid until the next one.

    A sequence whose numbers are not finite has logits and new K and V that are worth nothing. Those of the others are what
    they would be without it.
    """

    logits: np.ndarray  # float32 [R, vocabulary] of StepInput.logit_rows
    not_finite: np.ndarray  # int32 [B], not 0 where a number of the sequence was infinite or NaN
    # float32 [B], or empty where `read_pages` is: of a sequence whose read_pages is negative the share of the softmax, 0 to 1,
    # that the pages not chosen have; mean over the layers without a window and their query heads.
    omitted: np.ndarray = field(default_factory=lambda: NOT_PROBED)
    # int64 [G, B, max_pages], or empty where `watch` is: shares of the softmax that the watched rows of a sequence give to each
    # page, summed over rows, query heads and the layers of the group, in units of 1 / MASS_STEPS (contract.py). The same bits
    # whatever else is in the step, and rows may be watched in several steps and added.
    mass: np.ndarray = field(default_factory=lambda: NOT_WATCHED)

    def errors(self) -> dict[int, ExecutorError]:
        """Of the sequences whose numbers are not finite, by their place in the step."""
        reason = "the engine computes numbers that are not finite; check the package: edge verify"
        return {b: ExecutorError(reason) for b, flag in enumerate(self.not_finite.tolist()) if flag}


class Executor(Protocol):
    """One loaded engine and its pool memory. `run` is called by one thread at a time."""

    @property
    def isa(self) -> str:
        """Name of the instruction set that runs."""
        ...

    def run(self, step: StepInput) -> StepOutput:
        """Runs the step for all its sequences, or raises ExecutorError and leaves every new page unused."""
        ...

    def cancel(self) -> None:
        """From any thread: the step that runs now ends early with ExecutorError. Nothing happens when none runs."""
        ...

    def close(self) -> None:
        """Give all memory back. The executor cannot run afterwards."""
        ...
