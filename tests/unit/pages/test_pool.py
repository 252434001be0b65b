"""The pool: leases, reference counts, exact accounting, under any order of calls."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, precondition, rule

from edge.errors import BudgetError
from edge.pages.fit import PoolSize
from edge.pages.geometry import ExtentKind
from edge.pages.pool import Pool
from edge.pages.room import slabs_missing

SMALL, LARGE, THIRD = ExtentKind("fp16", 1024), ExtentKind("fp16", 3072), ExtentKind("int8", 1024)
ODD = ExtentKind("int4", 768)
SIZE = PoolSize(pool_bytes=8 * 8192, slab_bytes=8192)  # a slab: 8 small, or 2 large and an end of 2048 bytes


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
        pool.reserve(Counter({SMALL: 1, LARGE: 17}))
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
    pool.share([offset])
    pool.release(offset)
    assert pool.references(offset) == 1
    pool.release(offset)
    assert pool.references(offset) == 0 and pool.used_bytes == 0
    with pytest.raises(KeyError):
        pool.release(offset)


def test_counts_tell_used_free_slack_and_the_most_there_was() -> None:
    pool = Pool(SIZE)
    with pool.reserve(Counter({LARGE: 2, ODD: 1})) as lease:
        lease.take(LARGE)
        counts = pool.counts()
    # The end of the slab holds two of 768 bytes; 512 are left.
    assert counts.used_bytes == 6912 and counts.slack_bytes == 512 and counts.free_bytes == SIZE.pool_bytes - 6912 - 512
    assert counts.bytes_by_format == counts.high_water_by_format == {"fp16": 6144, "int4": 768}
    counts = pool.counts()
    assert (counts.used_bytes, counts.slack_bytes, counts.high_water_bytes) == (0, 0, 6912)


def test_the_end_of_a_slab_goes_to_smaller_extents_and_comes_back() -> None:
    pool = Pool(SIZE)
    with pool.reserve(Counter({LARGE: 16, THIRD: 15})) as lease:
        offsets = {kind: [lease.take(kind) for _ in range(count)] for kind, count in ((LARGE, 16), (THIRD, 15))}
        lease.commit()
    assert {offset % 8192 for offset in offsets[THIRD]} == {6144, 7168}
    with pytest.raises(BudgetError):
        pool.reserve(Counter({SMALL: 2}))
    for offset in offsets[LARGE][:2]:  # the first slab is not free: its end is in use
        pool.release(offset)
    with pytest.raises(BudgetError):
        pool.reserve(Counter({SMALL: 5}))
    for offset in offsets[THIRD][:2]:
        pool.release(offset)
    with pool.reserve(Counter({SMALL: 9})):
        pass
    pool.check(Counter([*offsets[LARGE][2:], *offsets[THIRD][2:]]))


class PoolMachine(RuleBasedStateMachine):
    """Any calls in any order; `held` is what the holders know."""

    extents = Bundle("extents")

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool(SIZE)
        self.held: Counter[int] = Counter()
        self.cuts: Counter[int] = Counter()

    @rule(
        target=extents,
        small=st.integers(0, 20),
        large=st.integers(0, 6),
        third=st.integers(0, 6),
        odd=st.integers(0, 12),
        taken=st.integers(0, 30),
        commit=st.booleans(),
    )
    def reserve(self, small: int, large: int, third: int, odd: int, taken: int, commit: bool) -> object:
        wanted = Counter({SMALL: small, LARGE: large, THIRD: third, ODD: odd})
        room = self.pool.room(())
        fits = slabs_missing(wanted, room.free_extents, room.ends, SIZE.slab_bytes) <= room.free_slabs
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
            assert len(set(offsets)) == len(offsets) and not set(offsets) & {*self.held, *self.cuts}
            if commit:
                lease.commit()
                self.held.update(offsets)
        return multiple(*offsets) if commit else multiple()

    @rule(target=extents, offset=extents)
    def share(self, offset: int) -> int:
        self.pool.share([offset])
        self.held[offset] += 1
        return offset

    @rule(offset=consumes(extents))
    def release(self, offset: int) -> None:
        self.pool.release(offset)
        self.held[offset] -= 1
        self.held += Counter()

    @rule(offset=extents)
    def keep(self, offset: int) -> None:
        self.pool.keep([offset])
        self.cuts[offset] += 1

    @precondition(lambda self: self.cuts)
    @rule(which=st.integers(0, 99))
    def let_go(self, which: int) -> None:
        offset = sorted(self.cuts)[which % len(self.cuts)]
        self.pool.let_go([offset])
        self.cuts[offset] -= 1
        self.cuts += Counter()

    @invariant()
    def everything_adds_up(self) -> None:
        self.pool.check(self.held, self.cuts)
        assert all(self.pool.is_cached(offset) == (offset not in self.held) for offset in self.cuts)


class EndlessMachine(PoolMachine):
    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool(SIZE, fills_ends=False)


TestEndlessMachine = EndlessMachine.TestCase
TestEndlessMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_slab_that_others_have_place_for_is_named_and_left_out_of_a_lease() -> None:
    pool, kind = Pool(PoolSize(4 * 4096, 4096)), ExtentKind("int8", 1024)
    with pool.reserve(Counter({kind: 12})) as lease:
        held = [lease.take(kind) for _ in range(12)]
        lease.commit()
    assert pool.scattered() == [], "three full slabs"
    for offset in (held[0], held[1], held[2], held[4]):
        pool.release(offset)
    assert [slab.in_use for slab in pool.scattered()] == [1, 3, 4]
    first = pool.slab_of(held[3])
    assert first == pool.scattered()[0] and held[3] in first and held[4] not in first
    with pool.reserve(Counter({kind: 1}), beside=first) as lease:
        assert lease.take(kind) == held[4]
        lease.commit()
    pool.release(held[3])
    assert pool.room(()).free_slabs == 2
    pool.check(Counter(held[4:]))
