"""Continuous batching as a pure function. Owns: the rules of order. Needs: state. Never: changes anything, reads a clock.

Decode tokens come first, then chunks of prompts, oldest request first, up to the tokens of a step. Requests are admitted in
order of arrival, so nobody starves: the oldest always runs. When the pool is full, cuts of the prefix cache go first, then
pages of idle sessions, then pages of running requests are demoted, and then it is the youngest that gives way.
"""

from __future__ import annotations

from collections import Counter

from edge.pages.geometry import ExtentKind, next_border, opened_extents, pages_for
from edge.scheduler.state import (
    Chunk,
    Decision,
    Demote,
    Evict,
    GiveUp,
    Nothing,
    Preempt,
    RequestState,
    Settle,
    State,
    StepLimits,
    StepPlan,
)


def plan(state: State, limits: StepLimits) -> Decision:
    """The next step, or what must be freed before there is one; then plan again."""
    if not state.running and not state.waiting:
        return Nothing()
    for request in state.running:
        if request.settling:
            return _settle(state, request)
    admitted = _admit(state, limits)
    if not isinstance(admitted, tuple):
        return admitted
    running = state.running + admitted
    wanted = _chunks(running, limits)
    fitting = _fit(state, running, wanted)
    if not isinstance(fitting, tuple):
        return fitting
    return StepPlan(
        admitted=tuple(request.request for request in admitted),
        chunks=tuple(sorted((chunk for _, chunk in fitting), key=lambda chunk: (not _is_decode(chunk), chunk.request))),
        extents=sum((_step_extents(state, request, chunk) for request, chunk in fitting), Counter()),
    )


def _settle(state: State, request: RequestState) -> Settle | Evict | GiveUp | Demote | Preempt:
    """Before anybody runs, so that no step reads what is to be demoted."""
    if state.room.holds(request.settling):
        return Settle(request.request)
    if state.can_evict:
        return Evict()
    if state.idle:
        return GiveUp(state.idle[0])
    return Demote() if state.can_demote else Preempt(state.running[-1].request)


def _admit(state: State, limits: StepLimits) -> tuple[RequestState, ...] | Evict | GiveUp:
    """Waiting requests that may start: all tokens known of them and of the running ones must find room. To ask for the next
    step only would admit requests that are preempted before their prompt is done."""
    if not state.waiting:
        return ()
    places = (1 if state.alone else limits.max_sequences) - len(state.running)
    promised = sum((request.to_known for request in state.running), Counter[ExtentKind]())
    admitted: list[RequestState] = []
    for request in state.waiting[: max(0, places)]:
        promised = promised + request.to_known
        if not state.room.holds(promised, _spare(state)):
            break
        admitted.append(request)
    if admitted or not places:
        return tuple(admitted)
    if state.can_evict:
        return Evict()
    # The head of the queue does not fit: whoever holds pages without computing gives them up, one after the other.
    head = state.waiting[0].owner
    others = [owner for owner in state.idle if owner != head]
    if others:
        return GiveUp(others[0])
    if not state.running and state.can_demote:
        return (state.waiting[0],)  # alone, with pages that are demoted on the way
    if not state.running:
        # Pages that it kept from an earlier turn may lie scattered over slabs; in an empty pool it fits (checked on arrival).
        assert head in state.idle, "a request that can never fit was let in"
        return GiveUp(head)
    return ()


def _chunks(running: tuple[RequestState, ...], limits: StepLimits) -> dict[int, Chunk]:
    """What each request would compute if there were pages for all: decode tokens first, then prompts, oldest first."""
    left = limits.max_step_tokens
    chunks: dict[int, Chunk] = {}
    for request in sorted(running, key=lambda r: (r.known - r.done > 1, r.request)):
        border = next_border(request.done)
        end = min(request.chunk_limit, border, request.done + min(limits.chunk_tokens, left))
        if end > request.done:
            cuts = tuple(cut for cut in request.cuts if request.done < cut <= end)
            chunks[request.request] = Chunk(request.request, request.done, end, end == request.known, cuts)
            left -= end - request.done
    return chunks


def _fit(
    state: State, running: tuple[RequestState, ...], wanted: dict[int, Chunk]
) -> tuple[tuple[RequestState, Chunk], ...] | Evict | GiveUp | Demote | Preempt:
    """The chunks whose pages are there, each with its request, oldest first."""
    fitting: list[tuple[RequestState, Chunk]] = []
    extents: Counter[ExtentKind] = Counter()
    for request in running:
        if request.request not in wanted:
            continue
        chunk = wanted[request.request]
        needed = extents + _step_extents(state, request, chunk)
        if state.can_evict and state.room.scatters(needed):
            return Evict()
        if state.room.holds(needed, _spare(state)):
            extents = needed
            fitting.append((request, chunk))
        elif state.can_evict:
            return Evict()
        elif state.idle:
            return GiveUp(state.idle[0])
        elif state.can_demote:
            return Demote()
        elif request is running[-1] and fitting:
            break  # the youngest waits a step, with its pages, while the older ones go on
        else:
            # Alone and still without room, it preempts itself: its pages lie scattered over slabs of their size, so that no
            # slab is free for another size. In an empty pool it fits.
            return Preempt(running[-1].request)
    return tuple(fitting)


def _spare(state: State) -> int:
    """Slabs that stay free: demoted pages are written anew before what they were is freed."""
    return 1 if state.can_demote else 0


def _is_decode(chunk: Chunk) -> bool:
    return chunk.is_last and chunk.end - chunk.start == 1


def _step_extents(state: State, request: RequestState, chunk: Chunk) -> Counter[ExtentKind]:
    """What the chunk takes; the page that it begins in, if begun, is there."""
    added = pages_for(chunk.end) - pages_for(chunk.start)
    return request.sealing.extents + opened_extents(state.room.groups, added, request.sealing.places)
