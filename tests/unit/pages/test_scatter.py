"""How many extents may be taken before sequences lie in too many slabs."""

from __future__ import annotations

from edge.pages.fit import PoolSize
from edge.pages.scatter import SlabUse, scatter_limits

LARGE, SMALL = 1000, 300
SIZE = PoolSize(8 * 3000, 3000)  # 8 slabs of 3 large extents or 10 small ones


def test_a_size_may_take_what_is_free_where_it_is_and_the_slabs_that_nobody_will_need() -> None:
    slabs = [SlabUse(True, ((LARGE, 1),)), SlabUse(True, ((SMALL, 4),))]
    # Of 8 slabs two are promised to each size: the share of each, and four that are left.
    assert scatter_limits(slabs, {LARGE: 5, SMALL: 11}, SIZE) == {LARGE: 1 + 5 * 3, SMALL: 4 + 5 * 10}


def test_slabs_that_cuts_alone_hold_count_as_they_are_taken() -> None:
    slabs = [SlabUse(True, ((LARGE, 0),)), SlabUse(False, ((LARGE, 1),)), SlabUse(False, ((LARGE, 0),))]
    promised = {LARGE: 9, SMALL: 50}  # three slabs and five: all
    assert scatter_limits(slabs, promised, SIZE) == {LARGE: 1 + 3, SMALL: 50}


def test_a_size_that_lies_in_more_slabs_than_its_share_keeps_to_them() -> None:
    slabs = [SlabUse(True, ((LARGE, 2),))] * 4
    assert scatter_limits(slabs, {LARGE: 9, SMALL: 50}, SIZE) == {LARGE: 8, SMALL: 50}
