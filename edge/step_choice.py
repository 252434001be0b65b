"""From decisions of the scheduler to a step that fits. Owns: who looks for cuts when. Needs: queues, pool, prefix cache. Never:
the order of who gives way (scheduler/plan.py), an engine."""

from __future__ import annotations

import time
from dataclasses import dataclass

from edge.errors import BudgetError, EdgeError, ExecutorError
from edge.executors.base import Executor
from edge.pages.geometry import GroupPages
from edge.pages.pool import NOTHING, Pool
from edge.pages.prefix_cache import PrefixCache
from edge.pages.room import Room
from edge.pressure import Relief, choose_relief, first_demotions, run_relief
from edge.queues import Queues
from edge.request import Request
from edge.scheduler.plan import plan
from edge.scheduler.state import Demote, Evict, GiveUp, Nothing, Preempt, Settle, StepLimits, StepPlan
from edge.stats import StepCounts
from edge.units import human_bytes


@dataclass(frozen=True, slots=True)
class Failed:
    """Requests that are to be ended with this error before there is a step."""

    requests: tuple[Request, ...]
    error: EdgeError


@dataclass(frozen=True, slots=True)
class StepChoice:
    """Does what plan() asks for until there is a step."""

    queues: Queues
    pool: Pool
    groups: tuple[GroupPages, ...]
    limits: StepLimits
    prefix_cache: PrefixCache
    counts: StepCounts
    executor: Executor
    may_demote: bool

    def next_step(self) -> StepPlan | Nothing | Failed:
        """The next step; until there is one, whoever must gives up pages."""
        has_looked, can_evict, can_demote = False, len(self.prefix_cache) > 0, self.may_demote
        while True:
            promised = self.queues.promised() if can_evict else NOTHING
            state = self.queues.state(self.pool.room(self.groups, promised), can_evict, can_demote)
            decision = plan(state, self.limits)
            # Before anybody starts, or pages go. Once: who looks again behind a GiveUp would take what it has just given up.
            if not has_looked and state.waiting and not (isinstance(decision, StepPlan) and not decision.admitted):
                has_looked = True
                if self.queues.look_again(self.prefix_cache):
                    continue
            if isinstance(decision, Evict):
                can_evict = self.prefix_cache.evict(self.queues.shared_to_seal())
                continue
            elif isinstance(decision, GiveUp):
                self.queues.give_up(decision.owner, self.prefix_cache)
            elif isinstance(decision, Settle):
                if (failed := self._settle(self.queues.running(decision.request), state.room)) is not None:
                    return failed
            elif isinstance(decision, Demote):
                demoted = self._demote(state.room)
                if isinstance(demoted, Failed):
                    return demoted
                can_demote = demoted
            elif isinstance(decision, Preempt):
                if self.queues.has_run_alone(decision.request):
                    return self._stuck(self.queues.running(decision.request))
                can_demote = self.may_demote
                self.queues.preempt(decision.request, self.prefix_cache)
                self.counts.preemptions += 1
                if self.queues.is_alone:  # it is promised an empty pool
                    self.prefix_cache.clear()
            else:
                return decision
            can_evict = len(self.prefix_cache) > 0

    def _settle(self, request: Request, room: Room) -> Failed | None:
        """Demotes pages of a request whose prompt is computed, as many as there is room for."""
        pages = request.sequence.pages
        chosen = first_demotions(pages, request.watch.demotions(pages, self.groups), room)
        return self._relieve(Relief({pages: chosen}, {}))

    def _demote(self, room: Room) -> bool | Failed:
        """Demotes pages of running requests; whether there were any."""
        relief = choose_relief(self.queues.running_pages(), self.pool, room)
        if relief is None:
            # Pages that cuts of the prefix cache hold too are not demoted: without these they can be.
            cuts = len(self.prefix_cache)
            self.prefix_cache.clear()
            return len(self.prefix_cache) < cuts
        if (failed := self._relieve(relief)) is not None:
            return failed
        self.counts.pages_demoted += sum(map(len, relief.demotions.values()))
        return True

    def _relieve(self, relief: Relief) -> Failed | None:
        """Runs it and counts its moves."""
        started = time.perf_counter()
        try:
            moves = run_relief(relief, self.pool, self.groups, self.executor)
        except ExecutorError as error:
            owners = relief.owners
            return Failed(tuple(each for each in self.queues.active() if each.sequence.pages in owners), error)
        self.counts.loop_seconds -= time.perf_counter() - started  # the engine's
        self.counts.add_moves(moves)
        return None

    def _stuck(self, request: Request) -> Failed:
        """It had the pool for itself, from its first token on."""
        size, done = human_bytes(self.pool.size.pool_bytes), request.sequence.pages.length
        baked = self.prefix_cache.find_pinned(request.sequence.token_ids, done)
        tokens = f"{done:,} tokens" if baked is None else f"{done - baked.length:,} tokens, behind its prefix,"
        reason = f"the KV pool of {size} holds no more than {tokens} of this request, with all pages demoted that may be"
        return Failed((request,), BudgetError(f"{reason}. Ask for fewer tokens, or give the pool more"))
