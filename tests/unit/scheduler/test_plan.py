"""The order of requests: what runs, what is admitted, who gives way."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from edge.contract import SEAL_TOKENS
from edge.pages.geometry import ExtentKind, GroupPages, PageKind, pages_for
from edge.pages.moves import Sealing
from edge.pages.room import Room
from edge.scheduler.plan import plan
from edge.scheduler.state import Demote, Evict, GiveUp, Nothing, Preempt, RequestState, Settle, State, StepLimits, StepPlan

PAGE = PageKind(ExtentKind("fp16", 1024), ExtentKind("fp16", 1024))
SEALED = PageKind(ExtentKind("int4", 1024), ExtentKind("int4", 1024))
GROUP = GroupPages(0, PAGE, SEALED)
LIMITS = StepLimits(max_step_tokens=256, max_sequences=4, chunk_tokens=128)


def request(
    number: int,
    known: int,
    done: int = 0,
    cuts: tuple[int, ...] = (),
    to_seal: int = 0,
    reusable: int = 0,
    chunk_limit: int | None = None,
    to_settle: int = 0,
) -> RequestState:
    to_known, sealing = taken(pages_for(known) - pages_for(done), to_seal), Sealing(taken(0, to_seal), (reusable,))
    return RequestState(number, 100 + number, known, done, chunk_limit or known, cuts, to_known, sealing, taken(0, to_settle))


def taken(opened: int, sealed: int) -> Counter[ExtentKind]:
    """Extents of so many pages: K and V are of one kind here."""
    return +Counter({PAGE.key: 2 * opened, SEALED.key: 2 * sealed})


def state(
    running: tuple[RequestState, ...] = (),
    waiting: tuple[RequestState, ...] = (),
    free_pages: int = 1000,
    idle: tuple[int, ...] = (),
    alone: bool = False,
    can_evict: bool = False,
    can_demote: bool = False,
) -> State:
    return State(running, waiting, idle, Room(2048, free_pages, {}, (), (GROUP,)), alone, can_evict, can_demote)


def planned(of: State, limits: StepLimits = LIMITS) -> StepPlan:
    decision = plan(of, limits)
    assert isinstance(decision, StepPlan)
    return decision


def spans(step: StepPlan) -> list[tuple[int, int, int]]:
    return [(chunk.request, chunk.start, chunk.end) for chunk in step.chunks]


def test_without_requests_there_is_nothing_to_do() -> None:
    assert plan(state(idle=(7,)), LIMITS) == Nothing()


def test_decode_tokens_come_before_prompts_and_prompts_fill_the_step() -> None:
    step = planned(state(running=(request(1, 500, 128), request(2, 40, 39), request(3, 300, 0))))
    assert spans(step) == [(2, 39, 40), (1, 128, 256), (3, 0, 127)]
    assert [chunk.is_last for chunk in step.chunks] == [True, False, False]


def test_a_chunk_ends_at_a_border_and_the_next_one_begins_there() -> None:
    assert spans(planned(state(running=(request(1, 500, 100),)))) == [(1, 100, 128)]
    assert spans(planned(state(running=(request(1, 500, 128),)))) == [(1, 128, 256)]


def test_a_chunk_carries_the_cut_points_inside_it() -> None:
    (chunk,) = planned(state(running=(request(1, 500, 128, cuts=(100, 128, 129, 200, 256, 257)),))).chunks
    assert chunk.cuts == (129, 200, 256)


def test_requests_are_admitted_in_order_up_to_the_sequences_of_a_step() -> None:
    waiting = tuple(request(number, 10) for number in range(2, 9))
    step = planned(state(running=(request(1, 20, 19),), waiting=waiting))
    assert step.admitted == (2, 3, 4)


def test_nobody_overtakes_a_request_that_does_not_fit() -> None:
    step = planned(state(running=(request(1, 20, 19),), waiting=(request(2, 400), request(3, 10)), free_pages=5))
    assert step.admitted == ()


def test_admission_counts_what_running_prompts_will_still_take() -> None:
    step = planned(state(running=(request(1, 256, 0),), waiting=(request(2, 64),), free_pages=9))
    assert step.admitted == () and step.extents == taken(4, 0)
    assert planned(state(running=(request(1, 256, 0),), waiting=(request(2, 64),), free_pages=10)).admitted == (2,)


def test_what_a_step_seals_needs_room_beside_what_it_adds() -> None:
    sealing = request(1, 300, 256, to_seal=4)
    assert planned(state(running=(sealing,), free_pages=6)).extents == taken(2, 4)
    assert plan(state(running=(sealing,), free_pages=5), LIMITS) == Preempt(1)
    # Of four places that are left two are taken by the pages that the step adds.
    left = request(1, 300, 256, to_seal=4, reusable=4)
    assert planned(state(running=(left,), free_pages=4)).extents == taken(0, 4)
    decode = request(1, 257, 256, to_seal=4)
    both = state(running=(decode, request(2, 257, 256, to_seal=4)), free_pages=10)
    assert planned(both).extents == taken(2, 8)
    assert spans(planned(state(running=both.running, free_pages=9))) == [(1, 256, 257)]


def test_idle_pages_are_given_up_before_anybody_waits_for_room() -> None:
    assert plan(state(waiting=(request(2, 64),), free_pages=1, idle=(7, 8)), LIMITS) == GiveUp(7)
    assert plan(state(running=(request(1, 33, 32),), free_pages=0, idle=(7,)), LIMITS) == GiveUp(7)


def test_cached_pages_go_before_idle_ones_and_before_anybody_is_preempted() -> None:
    for of in (
        state(waiting=(request(2, 64),), free_pages=1, idle=(7,), can_evict=True),
        state(running=(request(1, 33, 32),), free_pages=0, idle=(7,), can_evict=True),
        state(running=(request(1, 33, 32), request(2, 20, 19)), free_pages=0, can_evict=True),
    ):
        assert plan(of, LIMITS) == Evict()
    enough = state(running=(request(1, 33, 32),), waiting=(request(2, 64),), free_pages=9, can_evict=True)
    assert planned(enough).admitted == (2,)


def test_idle_pages_stay_while_no_place_is_free() -> None:
    running = tuple(request(number, 20, 19) for number in range(1, 5))
    step = planned(state(running=running, waiting=(request(9, 64),), free_pages=0, idle=(7,)))
    assert step.admitted == ()


def test_a_request_whose_own_pages_are_scattered_starts_from_nothing() -> None:
    alone = state(waiting=(request(2, 640, 64),), free_pages=1, idle=(102,))
    assert plan(alone, LIMITS) == GiveUp(102)


def test_a_full_pool_preempts_the_youngest() -> None:
    full = state(running=(request(1, 33, 32), request(2, 20, 19), request(3, 20, 19)), free_pages=0)
    assert plan(full, LIMITS) == Preempt(3)


def test_the_youngest_waits_with_its_pages_while_older_ones_go_on() -> None:
    step = planned(state(running=(request(1, 20, 19), request(2, 33, 32)), free_pages=0))
    assert spans(step) == [(1, 19, 20)]


def test_a_request_that_runs_alone_and_finds_no_room_starts_again() -> None:
    assert plan(state(running=(request(1, 33, 32),), free_pages=0), LIMITS) == Preempt(1)


def test_a_request_that_must_run_alone_gets_no_company() -> None:
    assert planned(state(waiting=(request(1, 64), request(2, 64)), alone=True)).admitted == (1,)
    assert planned(state(running=(request(1, 64, 63),), waiting=(request(2, 64),), alone=True)).admitted == ()


def test_pages_are_demoted_behind_idle_ones_and_before_anybody_waits_or_is_preempted() -> None:
    two = (request(1, 20, 19), request(2, 33, 32))
    assert plan(state(running=two, free_pages=0, idle=(7,), can_demote=True), LIMITS) == GiveUp(7)
    assert plan(state(running=two, free_pages=0, can_demote=True), LIMITS) == Demote()
    assert spans(planned(state(running=two, free_pages=0))) == [(1, 19, 20)]
    assert plan(state(running=(request(1, 33, 32),), free_pages=0, can_demote=True), LIMITS) == Demote()


def test_a_slab_stays_free_while_pages_can_be_demoted() -> None:
    one = (request(1, 33, 32),)
    assert plan(state(running=one, free_pages=1, can_demote=True), LIMITS) == Demote()
    assert planned(state(running=one, free_pages=2, can_demote=True)).extents == taken(1, 0)
    assert planned(state(running=one, free_pages=1)).extents == taken(1, 0)
    inside = planned(state(running=(request(1, 20, 19),), free_pages=0, can_demote=True))
    assert spans(inside) == [(1, 19, 20)], "a step that takes no page needs none to spare"


def test_a_request_that_fits_by_demotion_alone_starts_alone_and_none_beside_others() -> None:
    long = (request(2, 640), request(3, 10))
    assert planned(state(waiting=long, free_pages=10, can_demote=True)).admitted == (2,)
    step = planned(state(running=(request(1, 20, 19),), waiting=long, free_pages=10, can_demote=True))
    assert step.admitted == ()


@given(
    sizes=st.lists(st.tuples(st.integers(1, 700), st.integers(0, 699)), min_size=1, max_size=8),
    running=st.integers(0, 4),
    step_tokens=st.integers(4, 300),
    chunk=st.integers(1, 128),
    free_pages=st.integers(0, 40),
)
def test_every_plan_keeps_the_limits(
    sizes: list[tuple[int, int]], running: int, step_tokens: int, chunk: int, free_pages: int
) -> None:
    requests = [request(number, known, done % known) for number, (known, done) in enumerate(sizes)]
    limits = StepLimits(step_tokens, 4, chunk)
    waiting = tuple(request(each.request, each.known) for each in requests[running:])
    of = state(tuple(requests[:running]), waiting, free_pages)
    if not running and not of.room.holds(waiting[0].to_known):
        return  # refused on arrival
    decision = plan(of, limits)
    if isinstance(decision, Preempt):
        assert decision.request == of.running[-1].request
        return
    assert isinstance(decision, StepPlan) and decision.chunks
    assert sum(c.end - c.start for c in decision.chunks) <= step_tokens
    assert len({c.request for c in decision.chunks}) == len(decision.chunks) <= 4
    assert of.room.holds(decision.extents)
    by_number = {each.request: each for each in of.running + of.waiting}
    for c in decision.chunks:
        assert c.start == by_number[c.request].done < c.end <= by_number[c.request].known
        assert c.end - c.start <= chunk and c.start // SEAL_TOKENS == (c.end - 1) // SEAL_TOKENS
        assert c.is_last == (c.end == by_number[c.request].known)
    oldest = (of.running + of.waiting)[0].request
    assert oldest in {c.request for c in decision.chunks}, "the oldest always goes on"


def test_a_chunk_ends_where_the_prompt_does_though_more_is_known() -> None:
    step = planned(state(running=(request(1, 130, done=90, chunk_limit=100),)))
    assert spans(step) == [(1, 90, 100)] and not step.chunks[0].is_last


def test_pages_of_a_computed_prompt_are_demoted_before_anybody_runs() -> None:
    others = (request(1, 40, done=39), request(2, 41, done=40, to_settle=1))
    assert plan(state(running=others), LIMITS) == Settle(2)
    assert plan(state(running=others, waiting=(request(3, 10),), free_pages=1), LIMITS) == Settle(2)


def test_without_room_to_demote_a_computed_prompt_others_give_way_in_the_usual_order() -> None:
    running = (request(1, 40, done=39), request(2, 41, done=40, to_settle=1), request(3, 5))
    full = {"running": running, "free_pages": 0}
    assert plan(state(**full, can_evict=True, idle=(7,), can_demote=True), LIMITS) == Evict()  # type: ignore[arg-type]
    assert plan(state(**full, idle=(7,), can_demote=True), LIMITS) == GiveUp(7)  # type: ignore[arg-type]
    assert plan(state(**full, can_demote=True), LIMITS) == Demote()  # type: ignore[arg-type]
    assert plan(state(**full), LIMITS) == Preempt(3)  # type: ignore[arg-type]
