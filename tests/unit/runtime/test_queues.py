"""Places of requests: arrival, preemption, idle sessions."""

from __future__ import annotations

from edge.pace import Pace
from edge.pages.fit import PoolSize
from edge.pages.geometry import ExtentKind, GroupPages, PageCount, PageKind, extents_of
from edge.pages.pool import Pool
from edge.pages.prefix_cache import PrefixCache
from edge.pages.sequence import SequencePages
from edge.queues import Queues
from edge.request import Request, SequenceTokens
from edge.sampling import SamplingParams
from edge.scheduler.state import State, StepLimits
from edge.watch import PromptWatch

PAGE = PageKind(ExtentKind("fp16", 1024), ExtentKind("fp16", 1024))
GROUPS = (GroupPages(0, PAGE, PAGE),)
POOL = Pool(PoolSize(64 * 1024, 4096))
NO_CUTS = PrefixCache(POOL)


def make_request(number: int, tokens: int = 40) -> Request:
    sequence = SequenceTokens(100 + number, False, SequencePages(POOL, GROUPS, 8), [1] * tokens)
    watch = PromptWatch.of("uniform", GROUPS, tokens, 8)
    return Request(number, sequence, tokens, 0, SamplingParams(seed=1), 5, frozenset(), (), Pace(0.0), watch)


def compute(request: Request, tokens: int) -> None:
    pages = request.sequence.pages
    with POOL.reserve(extents_of(GROUPS, (PageCount(pages.missing(tokens), 0),))) as lease:
        words, _ = pages.place(tokens, lease)
        lease.commit()
    pages.commit(words, tokens)


def state(queues: Queues) -> State:
    return queues.state(POOL.room(GROUPS), False)


def numbers(of: State) -> tuple[list[int], list[int]]:
    return [each.request for each in of.running], [each.request for each in of.waiting]


def make_queues(count: int, running: int) -> tuple[Queues, list[Request]]:
    queues, requests = Queues(StepLimits(256, 4, 128), GROUPS), [make_request(number) for number in range(count)]
    for request in requests:
        queues.add(request)
    queues.admit(running)
    return queues, requests


def test_a_preempted_request_waits_in_front_without_pages() -> None:
    queues, requests = make_queues(5, 3)
    compute(requests[2], 40)
    queues.preempt(2, NO_CUTS)
    assert numbers(state(queues)) == ([0, 1], [2, 3, 4])
    assert requests[2].sequence.pages.held() == 0 and state(queues).waiting[0].to_known == {PAGE.key: 4}


def test_the_last_one_that_ran_runs_alone_until_it_ends() -> None:
    queues, requests = make_queues(3, 2)
    queues.preempt(1, NO_CUTS)
    assert not state(queues).alone
    queues.preempt(0, NO_CUTS)
    assert state(queues).alone and numbers(state(queues)) == ([], [0, 1, 2])
    queues.admit(1)
    queues.remove(requests[1], keep_pages=False)
    assert state(queues).alone
    queues.remove(requests[0], keep_pages=False)
    assert not state(queues).alone


def test_idle_sessions_come_before_waiting_requests_of_which_the_youngest_first() -> None:
    queues, requests = make_queues(5, 2)
    for request in requests:
        compute(request, 20)
    for number in (1, 0):
        requests[number].sequence.is_kept = True
        queues.remove(requests[number], keep_pages=True)
    assert state(queues).idle == (101, 100, 104, 103, 102)
    for owner in state(queues).idle:
        queues.give_up(owner, NO_CUTS)
    assert state(queues).idle == () and POOL.used_bytes == 0


def test_the_scheduler_sees_no_more_waiting_requests_than_could_run() -> None:
    queues, _ = make_queues(50, 0)
    assert numbers(state(queues)) == ([], [0, 1, 2, 3])
