"""Byte-pair merging. Owns: the order of merges. Needs: TokenTables. Never: splitting text, special tokens."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from edge.text.tables import ID_BITS, ID_MASK, TokenTables

LONG_PIECE = 4096  # symbols, from which on it is worth to look for repetition
NO_SYMBOL = -1  # a symbol outside the vocabulary: it merges with nothing
_MERGED = -2  # what stood here is part of the id to its left


def merge_symbols(tables: TokenTables, symbols: Sequence[int]) -> list[tuple[int, int, int]]:
    """Merges adjacent ids, lowest rank first, leftmost first among equals, until nothing merges.

    Returns (id, begin, end): what stands in place of symbols[begin:end]. O(n log n), so that one long word costs no more
    than its length, and one that repeats itself much less (run_merging.py).
    """
    if len(symbols) < LONG_PIECE:
        return _merge_each(tables, list(symbols), range(len(symbols)), len(symbols))
    from edge.text.run_merging import merge_runs  # numpy comes with it

    runs = merge_runs(tables, symbols)
    if runs.is_whole:
        return list(zip(runs.ids, runs.begins, [*runs.begins[1:], len(symbols)], strict=True))
    return _merge_each(tables, runs.ids, runs.begins, len(symbols))


def _merge_each(tables: TokenTables, ids: list[int], begins: Sequence[int], end: int) -> list[tuple[int, int, int]]:
    """One by one. `begins` says at which symbol each id begins; the last one reaches to `end`."""
    count = len(ids)
    following, previous = list(range(1, count + 1)), list(range(-1, count - 1))
    known: dict[tuple[int, int], int | None] = {}  # what `tables.merge` said: a long word has few kinds of pairs
    waiting: dict[int, list[int]] = {}  # by rank: a heap of the left places of pairs that had it when they were noted

    def merge(left: int, right: int) -> int | None:
        pair = ids[left], ids[right]
        if pair not in known:
            known[pair] = None if NO_SYMBOL in pair else tables.merge(*pair)
        return known[pair]

    for place in range(count - 1):
        found = merge(place, place + 1)
        if found is not None:
            waiting.setdefault(found >> ID_BITS, []).append(place)  # ascending, so already a heap
    ranks = list(waiting)
    heapify(ranks)

    def note(left: int, right: int) -> None:
        found = merge(left, right)
        if found is None:
            return
        rank = found >> ID_BITS
        if rank not in waiting:
            waiting[rank] = []
            heappush(ranks, rank)
        heappush(waiting[rank], left)

    while ranks:
        rank = ranks[0]
        if not waiting[rank]:
            del waiting[heappop(ranks)]
            continue
        left = heappop(waiting[rank])
        right = following[left]
        if ids[left] == _MERGED or right == count:
            continue
        found = merge(left, right)
        if found is None or found >> ID_BITS != rank:
            continue  # one of the two has merged with another since
        ids[left], ids[right] = found & ID_MASK, _MERGED
        following[left] = following[right]
        if following[left] < count:
            previous[following[left]] = left
            note(left, following[left])
        if previous[left] >= 0:
            note(previous[left], left)
    borders = [*begins, end]
    return [(ids[place], borders[place], borders[following[place]]) for place in range(count) if ids[place] != _MERGED]
