"""Byte-pair merging. Owns: the order of merges. Needs: TokenTables. Never: splitting text, special tokens."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from edge.text.tables import ID_BITS, ID_MASK, TokenTables

NO_SYMBOL = -1  # a symbol outside the vocabulary: it merges with nothing


def merge_symbols(tables: TokenTables, symbols: Sequence[int]) -> list[tuple[int, int, int]]:
    """Merges adjacent ids, lowest rank first, leftmost first among equals, until nothing merges.

    Returns (id, begin, end): what stands in place of symbols[begin:end]. O(n log n), so that one long word costs no more
    than its length.
    """
    ids = list(symbols)
    count = len(ids)
    following, previous = list(range(1, count + 1)), list(range(-1, count - 1))
    alive = [True] * count
    waiting: list[tuple[int, int, int, int, int]] = []  # rank, place of the left id, left id, right id, result

    def look(left: int, right: int) -> tuple[int, int, int, int, int] | None:
        if ids[left] == NO_SYMBOL or ids[right] == NO_SYMBOL:
            return None
        found = tables.merge(ids[left], ids[right])
        return None if found is None else (found >> ID_BITS, left, ids[left], ids[right], found & ID_MASK)

    for place in range(count - 1):
        pair = look(place, place + 1)
        if pair is not None:
            waiting.append(pair)
    heapify(waiting)
    while waiting:
        _, left, left_id, right_id, result = heappop(waiting)
        right = following[left]
        if not alive[left] or right == count or ids[left] != left_id or ids[right] != right_id:
            continue  # one of the two has merged with another since
        ids[left] = result
        alive[right] = False
        following[left] = following[right]
        if following[right] < count:
            previous[following[right]] = left
            pair = look(left, following[left])
            if pair is not None:
                heappush(waiting, pair)
        if previous[left] >= 0:
            pair = look(previous[left], left)
            if pair is not None:
                heappush(waiting, pair)
    return [(ids[place], place, following[place]) for place in range(count) if alive[place]]
