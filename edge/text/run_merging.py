"""Byte-pair merging of long pieces that say the same again and again: all pairs of a rank at once. Owns: the passes over them.
Needs: numpy, TokenTables. Never: pieces of few symbols, or text of many kinds of pairs, which merging.py has.

A megabyte of one letter, or of one word without spaces, is a million merges one by one. Here a pass merges every pair of the
best rank, as long as that is what merging one by one, the leftmost first, would come to; then the rest is left to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edge.text.tables import ID_BITS, ID_MASK

if TYPE_CHECKING:
    from edge.text.tables import TokenTables

LEAST_SYMBOLS = 4096  # below, merging one by one takes some 10 ms (merging.LONG_PIECE)
LEAST_SHARE = 32  # a pass must merge one symbol in so many, or it is not worth its sorting
MOST_KINDS = 1024  # of pairs; more, and no rank has its share for long
_NEVER = np.int64(1 << 62)  # rank of a pair that does not merge


@dataclass(frozen=True, slots=True)
class MergedRuns:
    """What stands in the place of the symbols; merging it further gives what merging the symbols gives."""

    ids: list[int]
    begins: list[int]  # at which symbol each id begins
    is_whole: bool  # nothing merges any more


def merge_runs(tables: TokenTables, symbols: Sequence[int]) -> MergedRuns:
    """Passes over `symbols`, as long as each is worth it."""
    ids, begins = np.asarray(symbols, np.int64), np.arange(len(symbols), dtype=np.int64)
    is_whole = False
    while len(ids) >= LEAST_SYMBOLS:
        ranks, results = _look_up(tables, ids[:-1], ids[1:])
        if ranks is None:
            break
        if is_whole := bool((best := ranks.min()) == _NEVER):
            break
        places = _leftmost(np.flatnonzero(ranks == best))
        if len(places) * LEAST_SHARE < len(ids):
            break
        merged = ids.copy()
        merged[places] = results[places]
        if not _is_last_word(tables, ids, merged, places, best):
            break
        keep = np.ones(len(ids), bool)
        keep[places + 1] = False
        ids, begins = merged[keep], begins[keep]
    return MergedRuns(ids.tolist(), begins.tolist(), is_whole)


def _leftmost(places: np.ndarray) -> np.ndarray:
    """Of pairs that share a symbol with their neighbour the first, the third, and so on."""
    starts = np.flatnonzero(np.diff(places, prepend=-2) > 1)  # of runs of neighbours
    run_of = np.repeat(starts, np.diff(starts, append=len(places)))
    chosen: np.ndarray = places[(np.arange(len(places)) - run_of) % 2 == 0]
    return chosen


def _is_last_word(tables: TokenTables, ids: np.ndarray, merged: np.ndarray, places: np.ndarray, best: np.int64) -> bool:
    """Whether no pair that comes about on the way, from left to right, would itself have been merged before the next one."""
    before = places[places > 0]
    # What is in front of a pair: the one that was merged just now, where that ends there.
    in_front = np.where(np.isin(before - 2, places, assume_unique=True), merged[before - 2], ids[before - 1])
    after = places[places + 2 < len(ids)]
    for left, right in ((in_front, merged[before]), (merged[after], ids[after + 2])):
        ranks, _ = _look_up(tables, left, right)
        if ranks is None or ranks.min(initial=_NEVER) <= best:
            return False
    return True


def _look_up(tables: TokenTables, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """Rank and id of what each pair becomes; None where the pairs are of too many kinds."""
    # A symbol outside of the vocabulary is -1, and so is then the pair.
    kinds, which = np.unique(np.where(np.minimum(left, right) < 0, -1, left << ID_BITS | right), return_inverse=True)
    if len(kinds) > MOST_KINDS:
        return None, which
    found = [None if kind < 0 else tables.merge(kind >> ID_BITS, kind & ID_MASK) for kind in kinds.tolist()]
    ranks = np.array([_NEVER if each is None else each >> ID_BITS for each in found], np.int64)
    results = np.array([0 if each is None else each & ID_MASK for each in found], np.int64)
    return ranks[which], results[which]
