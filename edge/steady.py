"""Steps that repeat: every running sequence decodes inside the pages that it has. Owns: Steady and its arrays. Needs: requests,
their pages. Never: decides.

Nothing is reserved, moved or freed in such a step, and nobody waits, so the scheduler would plan it anew only to say the same.
It is what a runtime does 31 times of 32, with caches that the engine has just filled with weights: each line of Python that is
not run saves a token its misses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edge.executors.base import ALL_PAGES, StepInput
from edge.pages.moves import pack_moves
from edge.request import Request


@dataclass(slots=True)
class Steady:  # the loop reads; its arrays change with each step
    requests: tuple[Request, ...]  # that decode, in the order of the step
    step: StepInput  # the last one that was run
    left: int  # more steps of this kind: until a sequence takes a page, seals or frees one

    def advance(self) -> StepInput:
        """The next step: of each sequence the last token that is known."""
        assert self.left > 0
        self.left -= 1
        token_ids, kv_len = self.step.token_ids.data, self.step.kv_len.data  # a third of the time that arrays take
        for b, request in enumerate(self.requests):
            token_ids[b] = request.sequence.token_ids[-1]
            kv_len[b] += 1
        for b in range(len(self.step.read_pages)):
            self.step.read_pages[b] = self.requests[b].wanted_pages(kv_len[b] - 1, kv_len[b])
        return self.step

    def commit(self) -> None:
        """The step was run: each sequence is a token longer."""
        for request in self.requests:
            request.sequence.pages.grow()


def find_steady(running: Sequence[Request]) -> Steady | None:
    """The steps that these requests take from here on, all alike; None where one of them computes its prompt or more than its
    last token, has pages to demote, or needs a page at once. Nobody else may wait."""
    if not running or any(not r.token_ids or len(r.sequence.token_ids) - r.sequence.pages.length != 1 for r in running):
        return None
    if any(request.watch.is_due(request.sequence.pages.length) for request in running):
        return None
    left = min(request.sequence.pages.steps_inside() for request in running)
    if not left:
        return None
    tables = [request.sequence.pages.words() for request in running]
    count = len(running)
    step = StepInput(
        token_ids=np.empty(count, np.int32),
        query_start=np.arange(count + 1, dtype=np.int32),
        kv_len=np.array([request.sequence.pages.length for request in running], np.int32),
        page_table=tables[0][:, None] if count == 1 else np.stack(tables, axis=1),
        page_moves=pack_moves(()),
        logit_rows=np.arange(count, dtype=np.int32),
        read_pages=np.zeros(count, np.int32) if any(request.reading.may_read_fewer for request in running) else ALL_PAGES,
    )
    return Steady(tuple(running), step, left)
