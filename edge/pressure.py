"""Room in a full pool: pages go to a level with fewer bits, what is left in half-empty slabs goes together. Owns: the choice
among sequences, the step of moves. Needs: pages, an executor. Never: when (scheduler), who runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edge.executors.base import Executor, StepInput
from edge.pages.geometry import ExtentKind, GroupPages
from edge.pages.moves import Copy, Demotion, PageMove, pack_moves
from edge.pages.policy import DEMOTED_ZONES
from edge.pages.pool import Pool
from edge.pages.room import Room
from edge.pages.sequence import SequencePages
from edge.pages.slabs import Slab

# Moves of a step of moves. A K of SmolLM2 takes 2 ms in plain loops, a chunk of its prompt 250.
MOVES_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Relief:
    """Extents of one sequence or several that are to be moved; never none."""

    demotions: dict[SequencePages, list[Demotion]]
    copies: dict[SequencePages, list[Copy]]
    emptied: Slab | None = None  # by the copies

    @property
    def owners(self) -> set[SequencePages]:
        return {*self.demotions, *self.copies}


def choose_relief(sequences: Sequence[SequencePages], pool: Pool, room: Room) -> Relief | None:
    """What gives room next. Copies that empty a slab, where others have place for what is in it: they change nothing that is
    read. Else pages to demote, as many as there is room to write anew, background before sections, of the sequences the first
    one that has such pages. None where nothing can be moved."""
    for slab in pool.scattered():
        copies = {pages: found for pages in sequences if (found := pages.extents_between(slab.start, slab.end))}
        # What others hold too, or somebody else holds, stays where it is.
        if sum(map(len, copies.values())) == slab.in_use and all(pages.are_ours(found) for pages, found in copies.items()):
            return Relief({}, copies, slab)
    for zone in DEMOTED_ZONES:
        for pages in sequences:
            if chosen := first_demotions(pages, pages.demotable(zone), room):
                return Relief({pages: chosen}, {})
    return None


def first_demotions(pages: SequencePages, demotions: Sequence[Demotion], room: Room) -> list[Demotion]:
    """The first of them that one step of moves does."""
    chosen: list[Demotion] = []
    extents: Counter[ExtentKind] = Counter()
    for each in demotions:
        extents += pages.demoted([each])
        if extents.total() > MOVES_AT_ONCE or not room.holds(extents):
            break
        chosen.append(each)
    return chosen


def run_relief(relief: Relief, pool: Pool, groups: tuple[GroupPages, ...], executor: Executor) -> tuple[PageMove, ...]:
    """Does this in a step of moves alone; the moves. ExecutorError, and nothing changed, where the engine fails."""
    extents: Counter[ExtentKind] = Counter()
    for pages, demotions in relief.demotions.items():
        extents += pages.demoted(demotions)
    for pages, copies in relief.copies.items():
        extents.update(pages.extent_kind(copy) for copy in copies)
    todo = [(pages, relief.demotions.get(pages, []), relief.copies.get(pages, [])) for pages in relief.owners]
    with pool.reserve(extents, relief.emptied) as lease:
        placed = [pages.place(pages.length, lease, demotions, copies) for pages, demotions, copies in todo]
        moves = tuple(move for _, of_pages in placed for move in of_pages)
        executor.run(
            StepInput(
                token_ids=np.empty(0, np.int32),
                query_start=np.zeros(1, np.int32),
                kv_len=np.empty(0, np.int32),
                page_table=np.empty((len(groups), 0, placed[0][0].shape[1], 2), np.int32),
                page_moves=pack_moves(moves),
                logit_rows=np.empty(0, np.int32),
            )
        )
        lease.commit()
    for (pages, demotions, copies), (words, _) in zip(todo, placed, strict=True):
        pages.commit(words, pages.length, demotions, copies)
    return moves
