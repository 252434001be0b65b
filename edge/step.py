"""A step plan as the arrays that an executor reads. Owns: packing. Needs: scheduler's chunks, pages' words. Never: decides."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from edge.executors.base import ALL_PAGES, NOBODY, StepInput
from edge.pages.lease import Lease
from edge.pages.moves import PageMove, pack_moves
from edge.request import SequenceTokens
from edge.scheduler.state import Chunk


def pack_step(
    chunks: Sequence[Chunk],
    sequences: Sequence[SequenceTokens],
    lease: Lease,
    read_pages: Sequence[int] = (),
    watch: Sequence[int] = (),
) -> tuple[StepInput, tuple[PageMove, ...]]:
    """The input of a step, and its moves; sequence b of `sequences` runs chunk b. New extents come from `lease`, the tables of
    the sequences stay as they are. `read_pages` and `watch` are as in StepInput."""
    query_start = [0, *accumulate(chunk.end - chunk.start for chunk in chunks)]
    tokens = [sequence.token_ids[chunk.start : chunk.end] for chunk, sequence in zip(chunks, sequences, strict=True)]
    placed = [sequence.pages.place(chunk.end, lease) for chunk, sequence in zip(chunks, sequences, strict=True)]
    moves = tuple(move for _, of_sequence in placed for move in of_sequence)
    tables = [words for words, _ in placed]
    step = StepInput(
        token_ids=np.array([token for part in tokens for token in part], np.int32),
        query_start=np.array(query_start, np.int32),
        kv_len=np.array([chunk.end for chunk in chunks], np.int32),
        page_table=tables[0][:, None] if len(tables) == 1 else np.stack(tables, axis=1),
        page_moves=pack_moves(moves),
        logit_rows=np.array([query_start[b + 1] - 1 for b, chunk in enumerate(chunks) if chunk.is_last], np.int32),
        read_pages=np.array(read_pages, np.int32) if any(read_pages) else ALL_PAGES,
        watch=np.array(watch, np.int32) if any(watch) else NOBODY,
    )
    return step, moves
