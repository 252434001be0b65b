"""Requests in their places: waiting, running, and sessions that idle. Owns: the lists. Needs: request. Never: an engine."""

from __future__ import annotations

from collections import Counter

from edge.pages.geometry import GroupPages
from edge.pages.prefix_cache import PrefixCache
from edge.pages.room import Room
from edge.pages.sequence import SequencePages
from edge.request import Request, SequenceTokens
from edge.scheduler.state import RequestState, State, StepLimits


class Queues:
    """Who waits and who runs, in order of arrival, and whose pages stand idle."""

    def __init__(self, limits: StepLimits, groups: tuple[GroupPages, ...]) -> None:
        self._limits = limits
        self._groups = groups
        self._waiting: list[Request] = []
        self._running: list[Request] = []
        self._idle: dict[int, SequenceTokens] = {}  # by owner: sessions without a request, the longest idle first
        self._alone: set[int] = set()  # the request that must run alone, where there is one (scheduler/plan.py)

    def active(self) -> list[Request]:
        """Requests that have not ended."""
        return self._running + self._waiting

    def add(self, request: Request) -> None:
        """A new request, behind all others."""
        self._idle.pop(request.sequence.owner, None)
        self._waiting.append(request)

    @property
    def is_alone(self) -> bool:
        """Whether a request must run alone."""
        return bool(self._alone)

    def state(self, room: Room, can_evict: bool, can_demote: bool = False) -> State:
        """What the scheduler looks at. More waiting requests than can run at once make no difference to it."""
        holders = [request.sequence.owner for request in reversed(self._waiting) if request.sequence.pages.takes_room()]
        return State(
            running=tuple(self._picture(request) for request in self._running),
            waiting=tuple(self._picture(request) for request in self._waiting[: self._limits.max_sequences]),
            idle=(*self._idle, *holders),
            room=room,
            alone=self.is_alone,
            can_evict=can_evict,
            can_demote=can_demote,
        )

    def promised(self) -> Counter[int]:
        """By extent bytes, the most that the running requests and the first that waits will hold."""
        most: Counter[int] = Counter()
        for request in [*self._running, *self._waiting[:1]]:
            most += request.peak
        return most

    def shared_to_seal(self) -> set[int]:
        """Offsets which the next steps of running requests seal, and that others hold as well."""
        return {offset for request in self._running for offset in request.sequence.pages.shared_to_seal()}

    def running_alone(self) -> tuple[Request, ...]:
        """The running requests, where nobody waits."""
        return () if self._waiting else tuple(self._running)

    def admit(self, count: int) -> None:
        """The first `count` waiting requests run from now on."""
        for request in self._waiting[:count]:
            request.begin()
        self._running += self._waiting[:count]
        del self._waiting[:count]

    def look_again(self, prefix_cache: PrefixCache) -> bool:
        """Waiting requests that could be admitted go on from longer cuts, where some came since they did; whether one does."""
        count = sum(request.sequence.lengthen(prefix_cache) for request in self._waiting[: self._limits.max_sequences])
        return count > 0

    def has_run_alone(self, request_id: int) -> bool:
        """Whether this request was the last that ran when it was preempted, so that it runs alone."""
        return request_id in self._alone

    def running_pages(self) -> list[SequencePages]:
        """Pages of the running requests, the youngest first."""
        return [request.sequence.pages for request in reversed(self._running)]

    def running(self, request_id: int) -> Request:
        return next(request for request in self._running if request.id == request_id)

    def give_up(self, owner: int, prefix_cache: PrefixCache) -> None:
        """Frees the pages of an idle session or of a waiting request."""
        if (idle := self._idle.pop(owner, None)) is not None:
            idle.release()
            return
        next(request.sequence for request in self._waiting if request.sequence.owner == owner).give_up(prefix_cache)

    def preempt(self, request_id: int, prefix_cache: PrefixCache) -> None:
        """Frees the pages of a running request, which waits again, in front. The last one that ran will run alone."""
        request = self.running(request_id)
        self._running.remove(request)
        if not self._running:
            self._alone.add(request_id)
        request.sequence.give_up(prefix_cache)
        self._waiting.insert(0, request)

    def remove(self, request: Request, keep_pages: bool) -> None:
        """A request has ended. Pages stay, idle, where they are to be kept."""
        (self._running if request in self._running else self._waiting).remove(request)
        self._alone.discard(request.id)
        if not keep_pages:
            request.sequence.pages.release()
        elif request.sequence.pages.held():
            self._idle[request.sequence.owner] = request.sequence

    def forget(self, sequence: SequenceTokens) -> None:
        """Frees the pages of a sequence without a request."""
        self._idle.pop(sequence.owner, None)
        sequence.pages.release()

    def idle_sequences(self) -> list[SequenceTokens]:
        return list(self._idle.values())

    def extents(self) -> Counter[int]:
        """Offsets that sequences hold, each with the number of times."""
        held: Counter[int] = Counter()
        for sequence in [*(request.sequence for request in self.active()), *self._idle.values()]:
            held += sequence.pages.extents()
        return held

    def _picture(self, request: Request) -> RequestState:
        pages, known, watch = request.sequence.pages, len(request.sequence.token_ids), request.watch
        groups, chunk_tokens = self._groups, self._limits.chunk_tokens
        due = watch.demotions(pages, groups)[:1] if watch.is_due(pages.length) else []
        return RequestState(
            request=request.id,
            owner=request.sequence.owner,
            known=known,
            done=pages.length,
            chunk_limit=min(request.alike_until(), watch.chunk_limit(pages.length, known)),
            cuts=request.cuts,
            to_known=pages.extents_until(known, chunk_tokens) + watch.extents(pages, groups),
            sealing=pages.sealing(),
            settling=pages.demoted(due),
        )
