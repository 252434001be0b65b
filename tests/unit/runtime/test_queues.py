"""Places of requests: arrival, preemption, idle sessions."""

from __future__ import annotations

from edge.pace import Pace
from edge.pages.fit import PoolSize
from edge.pages.geometry import ExtentKind, GroupPages, PageCount, PageKind, extents_of
from edge.pages.pool import Pool
from edge.pages.prefix_cache import PrefixCache
from edge.pages.read_budget import Reading, ReadTokens
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


def test_what_gave_its_pages_up_is_computed_again_from_all_pages_unless_it_replays_its_reads() -> None:
    queues, requests = make_queues(2, 2)
    for number, request in enumerate(requests):
        request.sequence.replays = bool(number)
        compute(request, 40)
        request.learn(36, 7, 0.0)
        assert request.sequence.has_read_all(35) and not request.sequence.has_read_all(36)
        queues.preempt(number, NO_CUTS)
        assert request.sequence.has_read_all(36) is not request.sequence.replays
        assert [request.wanted_pages(start, start + 1) for start in (34, 35)] == [0, 7 * number]


def test_a_request_that_replays_its_reads_computes_tokens_that_read_alike_in_one_step() -> None:
    request = make_request(0)
    request.sequence.replays, request.reading = True, Reading(ReadTokens(128))
    assert request.alike_until() == 40, "a prompt reads all"
    request.token_ids = [1] * 8
    request.sequence.reads = {35: 7, 36: 7}
    ends = []
    for done in (0, 35, 36, 37, 39):
        compute(request, done)
        ends.append(request.alike_until())
    assert ends == [35, 36, 37, 39, 40], "and the first new token goes alone"
