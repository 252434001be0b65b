"""From decisions of the scheduler to a step that fits. Owns: who looks for cuts when. Needs: queues, pool, prefix cache. Never:
the order of who gives way (scheduler/plan.py), an engine."""

from __future__ import annotations

from dataclasses import dataclass

from edge.pages.geometry import GroupPages
from edge.pages.pool import NOTHING, Pool
from edge.pages.prefix_cache import PrefixCache
from edge.queues import Queues
from edge.scheduler.plan import plan
from edge.scheduler.state import Evict, GiveUp, Nothing, Preempt, StepLimits, StepPlan
from edge.stats import StepCounts


@dataclass(frozen=True, slots=True)
class StepChoice:
    """Does what plan() asks for until there is a step."""

    queues: Queues
    pool: Pool
    groups: tuple[GroupPages, ...]
    limits: StepLimits
    prefix_cache: PrefixCache
    counts: StepCounts

    def next_step(self) -> StepPlan | Nothing:
        """The next step; until there is one, whoever must gives up pages."""
        has_looked, can_evict = False, len(self.prefix_cache) > 0
        while True:
            promised = self.queues.promised() if can_evict else NOTHING
            state = self.queues.state(self.pool.room(self.groups, promised), can_evict)
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
            elif isinstance(decision, Preempt):
                self.queues.preempt(decision.request, self.prefix_cache)
                self.counts.preemptions += 1
                if self.queues.is_alone:  # it is promised an empty pool
                    self.prefix_cache.clear()
            else:
                return decision
            can_evict = len(self.prefix_cache) > 0
