"""Continuous batching as a pure function. Owns: the rules of order. Needs: state. Never: changes anything, reads a clock.

Decode tokens come first, then chunks of prompts, oldest request first, up to the tokens of a step. Requests are admitted in
order of arrival, so nobody starves: the oldest always runs, and when the pool is full it is the youngest that gives way.
"""

from __future__ import annotations

from edge.contract import SEAL_TOKENS
from edge.pages.geometry import pages_for
from edge.scheduler.state import Chunk, Decision, GiveUp, Nothing, Preempt, RequestState, State, StepLimits, StepPlan


def plan(state: State, limits: StepLimits) -> Decision:
    """The next step, or what must be freed before there is one; then plan again."""
    if not state.running and not state.waiting:
        return Nothing()
    admitted = _admit(state, limits)
    if isinstance(admitted, GiveUp):
        return admitted
    running = state.running + admitted
    wanted = _chunks(running, limits)
    fitting = _fit(state, running, wanted)
    if not isinstance(fitting, tuple):
        return fitting
    return StepPlan(
        admitted=tuple(request.request for request in admitted),
        chunks=tuple(sorted(fitting, key=lambda chunk: (not _is_decode(chunk), chunk.request))),
        pages=(sum(_new_pages(chunk) for chunk in fitting),) * len(state.room.groups),
        page_moves=(),  # of the presets only `exact` exists so far: it seals nothing
    )


def _admit(state: State, limits: StepLimits) -> tuple[RequestState, ...] | GiveUp:
    """Waiting requests that may start: all tokens known of them and of the running ones must find room. To ask for the next
    step only would admit requests that are preempted before their prompt is done."""
    if not state.waiting:
        return ()
    places = (1 if state.alone else limits.max_sequences) - len(state.running)
    promised = _sum_pages(state, state.running)
    admitted: list[RequestState] = []
    for request in state.waiting[: max(0, places)]:
        promised = tuple(a + b for a, b in zip(promised, request.pages_to_known, strict=True))
        if not state.room.holds(promised):
            break
        admitted.append(request)
    if admitted or not places:
        return tuple(admitted)
    # The head of the queue does not fit: whoever holds pages without computing gives them up, one after the other.
    head = state.waiting[0].owner
    others = [owner for owner in state.idle if owner != head]
    if others:
        return GiveUp(others[0])
    if not state.running:
        # Pages that it kept from an earlier turn may lie scattered over slabs; in an empty pool it fits (checked on arrival).
        assert head in state.idle, "a request that can never fit was let in"
        return GiveUp(head)
    return ()


def _sum_pages(state: State, requests: tuple[RequestState, ...]) -> tuple[int, ...]:
    return tuple(sum(r.pages_to_known[group] for r in requests) for group in range(len(state.room.groups)))


def _chunks(running: tuple[RequestState, ...], limits: StepLimits) -> dict[int, Chunk]:
    """What each request would compute if there were pages for all: decode tokens first, then prompts, oldest first."""
    left = limits.max_step_tokens
    chunks: dict[int, Chunk] = {}
    for request in sorted(running, key=lambda r: (r.known - r.done > 1, r.request)):
        border = (request.done // SEAL_TOKENS + 1) * SEAL_TOKENS
        end = min(request.known, border, request.done + min(limits.chunk_tokens, left))
        if end > request.done:
            cuts = tuple(cut for cut in request.cuts if request.done < cut <= end)
            chunks[request.request] = Chunk(request.request, request.done, end, end == request.known, cuts)
            left -= end - request.done
    return chunks


def _fit(state: State, running: tuple[RequestState, ...], wanted: dict[int, Chunk]) -> tuple[Chunk, ...] | GiveUp | Preempt:
    """The chunks whose pages are there, oldest request first."""
    fitting: list[Chunk] = []
    pages = 0
    for request in running:
        if request.request not in wanted:
            continue
        chunk = wanted[request.request]
        if state.room.holds((pages + _new_pages(chunk),) * len(state.room.groups)):
            pages += _new_pages(chunk)
            fitting.append(chunk)
        elif state.idle:
            return GiveUp(state.idle[0])
        elif request is running[-1] and fitting:
            break  # the youngest waits a step, with its pages, while the older ones go on
        else:
            # Alone and still without room, it preempts itself: its pages lie scattered over slabs of their size, so that no
            # slab is free for another size. In an empty pool it fits.
            return Preempt(running[-1].request)
    return tuple(fitting)


def _is_decode(chunk: Chunk) -> bool:
    return chunk.is_last and chunk.end - chunk.start == 1


def _new_pages(chunk: Chunk) -> int:
    """Pages that the chunk adds in every layer group: the page that it begins in, if begun, is there."""
    return pages_for(chunk.end) - pages_for(chunk.start)
