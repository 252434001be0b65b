"""The pool: leases, reference counts, exact accounting, under any order of calls."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from edge.errors import BudgetError
from edge.pages.geometry import ExtentKind, GroupPages, PoolSize
from edge.pages.pool import Pool

SMALL, LARGE, THIRD = ExtentKind("fp16", 1024), ExtentKind("fp16", 3072), ExtentKind("int8", 1024)
SIZE = PoolSize(pool_bytes=8 * 8192, slab_bytes=8192)  # a slab: 8 small, or 2 large and 2048 bytes of slack


def test_a_lease_left_early_gives_everything_back() -> None:
    pool = Pool(SIZE)

    def leave_early() -> None:
        with pool.reserve(Counter({SMALL: 3, LARGE: 2})) as lease:
            lease.take(SMALL)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        leave_early()
    assert pool.used_bytes == 0
    pool.check(Counter())


def test_a_committed_lease_keeps_what_was_taken_and_returns_the_rest() -> None:
    pool = Pool(SIZE)
    with pool.reserve(Counter({SMALL: 3})) as lease:
        kept = lease.take(SMALL)
        lease.commit()
    assert pool.used_bytes == SMALL.bytes
    pool.check(Counter({kept: 1}))


def test_more_than_was_reserved_cannot_be_taken() -> None:
    with Pool(SIZE).reserve(Counter({SMALL: 1})) as lease:
        lease.take(SMALL)
        with pytest.raises(AssertionError):
            lease.take(SMALL)


def test_a_refused_reservation_changes_nothing() -> None:
    pool = Pool(SIZE)
    with pytest.raises(BudgetError, match="slabs"):
        pool.reserve(Counter({SMALL: 1, LARGE: 15}))
    assert pool.used_bytes == 0 and pool.counts().high_water_bytes == 0
    pool.check(Counter())


def test_an_empty_slab_changes_its_size() -> None:
    pool = Pool(SIZE)
    lease = pool.reserve(Counter({SMALL: 64}))
    offsets = [lease.take(SMALL) for _ in range(64)]
    lease.commit()
    with pytest.raises(BudgetError):
        pool.reserve(Counter({LARGE: 1}))
    for offset in offsets[:8]:
        pool.release(offset)
    with pool.reserve(Counter({LARGE: 2})):
        pass


def test_offsets_are_given_out_lowest_first() -> None:
    with Pool(SIZE).reserve(Counter({SMALL: 9})) as lease:
        assert [lease.take(SMALL) for _ in range(9)] == [i * 1024 for i in range(9)]


def test_a_shared_extent_is_free_when_its_last_holder_leaves() -> None:
    pool = Pool(SIZE)
    with pool.reserve(Counter({SMALL: 1})) as lease:
        offset = lease.take(SMALL)
        lease.commit()
    pool.share(offset)
    pool.release(offset)
    assert pool.references(offset) == 1
    pool.release(offset)
    assert pool.references(offset) == 0 and pool.used_bytes == 0
    with pytest.raises(KeyError):
        pool.release(offset)


def test_counts_tell_used_free_slack_and_the_most_there_was() -> None:
    pool = Pool(SIZE)
    with pool.reserve(Counter({LARGE: 1, THIRD: 1})) as lease:
        lease.take(LARGE)
        counts = pool.counts()
    assert counts.used_bytes == 4096 and counts.slack_bytes == 2048 and counts.free_bytes == SIZE.pool_bytes - 4096 - 2048
    assert counts.bytes_by_format == {"fp16": 3072, "int8": 1024}
    assert pool.counts().used_bytes == 0 and pool.counts().high_water_bytes == 4096


class PoolMachine(RuleBasedStateMachine):
    """Any calls in any order; `held` is what the holders know."""

    extents = Bundle("extents")

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool(SIZE)
        self.held: Counter[int] = Counter()

    @rule(
        target=extents,
        small=st.integers(0, 20),
        large=st.integers(0, 6),
        third=st.integers(0, 6),
        taken=st.integers(0, 30),
        commit=st.booleans(),
    )
    def reserve(self, small: int, large: int, third: int, taken: int, commit: bool) -> object:
        wanted = Counter({SMALL: small, LARGE: large, THIRD: third})
        # Room speaks of pages of a group: one K and one V. A group of its own for each kind says the same of extents.
        groups = tuple(GroupPages(0, kind, ExtentKind("fp16", 0)) for kind in wanted)
        room = self.pool.room(groups)
        fits = _holds(room.free_slabs, room.free_extents, wanted)
        try:
            lease = self.pool.reserve(wanted)
        except BudgetError:
            assert not fits
            return multiple()
        assert fits
        offsets = []
        with lease:
            for kind in list(wanted.elements())[:taken]:
                offsets.append(lease.take(kind))
            assert len(set(offsets)) == len(offsets) and not set(offsets) & set(self.held)
            if commit:
                lease.commit()
                self.held.update(offsets)
        return multiple(*offsets) if commit else multiple()

    @rule(target=extents, offset=extents)
    def share(self, offset: int) -> int:
        self.pool.share(offset)
        self.held[offset] += 1
        return offset

    @rule(offset=consumes(extents))
    def release(self, offset: int) -> None:
        self.pool.release(offset)
        self.held[offset] -= 1
        self.held += Counter()

    @invariant()
    def everything_adds_up(self) -> None:
        self.pool.check(self.held)


def _holds(free_slabs: int, free_extents: dict[int, int], wanted: Counter[ExtentKind]) -> bool:
    """Slowly and plainly: hands extents out one by one."""
    left = dict(free_extents)
    for kind in wanted.elements():
        if left.get(kind.bytes, 0) == 0:
            if free_slabs == 0:
                return False
            free_slabs -= 1
            left[kind.bytes] = SIZE.slab_bytes // kind.bytes
        left[kind.bytes] -= 1
    return True


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
