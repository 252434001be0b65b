"""What the scheduler looks at, and what it decides. Owns: frozen pictures. Needs: pages.room. Never: behaviour."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from edge.pages.geometry import ExtentKind
from edge.pages.moves import Sealing
from edge.pages.room import Room


@dataclass(frozen=True, slots=True)
class StepLimits:
    """Of the engine and the configuration."""

    max_step_tokens: int  # rows of one step
    max_sequences: int  # that run at once
    chunk_tokens: int  # of one sequence in one step, at most SEAL_TOKENS

    def __post_init__(self) -> None:
        assert 1 <= self.max_sequences <= self.max_step_tokens, "every decoding sequence must find place in a step"
        assert self.chunk_tokens >= 1


@dataclass(frozen=True, slots=True)
class RequestState:  # the loop writes, plan() reads
    """One request, running or waiting. The numbers are ascending in order of arrival."""

    request: int
    owner: int  # of its pages, as in State.idle
    known: int  # tokens whose ids are known: prompt and answer so far
    done: int  # of these, tokens whose K and V are in pages
    chunk_limit: int  # its next chunk ends there at the latest, at most `known`: what is behind reads or is watched otherwise
    cuts: tuple[int, ...]  # cut points (turn ends), positions ascending
    to_known: Counter[ExtentKind]  # extents that the way from `done` to `known` takes at most; never changed
    sealing: Sealing  # what its next step seals, out of place
    settling: Counter[ExtentKind]  # what the next page takes that must be demoted before it goes on; empty: none


@dataclass(frozen=True, slots=True)
class State:  # the loop writes, plan() reads
    running: tuple[RequestState, ...]  # in order of arrival
    waiting: tuple[RequestState, ...]  # in order of arrival; a preempted request is among them
    idle: tuple[int, ...]  # owners of pages that nobody computes with, in the order in which they are to be given up
    room: Room
    alone: bool  # the oldest runs alone: it was preempted though nothing else ran (see plan)
    can_evict: bool  # the prefix cache has cuts, and one whose going helps has not been looked for in vain
    can_demote: bool = False  # running requests may have pages that can be demoted; one slab stays free for that


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens start .. end - 1 of one request. The logits of the last are wanted when nothing known comes behind it."""

    request: int
    start: int
    end: int
    is_last: bool
    cuts: tuple[int, ...]  # cut points in (start, end]


@dataclass(frozen=True, slots=True)
class StepPlan:  # plan() writes, the loop reads
    """A step that fits: its pages are there."""

    admitted: tuple[int, ...]  # waiting requests that run from now on
    chunks: tuple[Chunk, ...]  # never empty; decoding sequences first
    extents: Counter[ExtentKind]  # to reserve: of new pages, and those that take what is sealed; never changed


@dataclass(frozen=True, slots=True)
class Evict:  # plan() writes, the loop reads
    """Let one cut of the prefix cache go, then plan again."""


@dataclass(frozen=True, slots=True)
class GiveUp:  # plan() writes, the loop reads
    """Free the pages of this idle owner, then plan again."""

    owner: int


@dataclass(frozen=True, slots=True)
class Demote:  # plan() writes, the loop reads
    """Demote pages of running requests, then plan again; where none can be, with State.can_demote off."""


@dataclass(frozen=True, slots=True)
class Settle:  # plan() writes, the loop reads
    """Demote pages of this running request, whose prompt is computed, then plan again."""

    request: int


@dataclass(frozen=True, slots=True)
class Preempt:  # plan() writes, the loop reads
    """Free the pages of this running request and let it wait; it is computed again later. Then plan again."""

    request: int


@dataclass(frozen=True, slots=True)
class Nothing:  # plan() writes, the loop reads
    """No request runs or waits."""


Decision = StepPlan | Evict | GiveUp | Settle | Demote | Preempt | Nothing
