"""Which pages stay a step more exact when a prompt is computed, by what its last tokens gave to them. Owns: the watched rows,
their mass, the pages that are to be demoted. Needs: pages, policies. Never: an engine, a pool, order.

While the prompt is computed its pages are sealed one level above the preset's (policy.seal_levels). Behind its last token the
pages with most mass keep that, and the others go to the preset's level before anybody reads them again. Mass is a sum of whole
numbers, a chunk ends where the prompt does, and nothing else is looked at: chunks and neighbours do not show in an answer.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from edge.contract import WATCH_ROWS
from edge.pages.geometry import ExtentKind, GroupPages, extents_between, sealed_end
from edge.pages.moves import Demotion
from edge.pages.policy import kept_raised
from edge.pages.sequence import SequencePages
from edge.policies import BY_ATTENTION, RAISED_SHARES, PolicyName


@dataclass(eq=False, slots=True)
class PromptWatch:  # the loop writes
    """One prompt of one sequence."""

    policy: PolicyName
    watched: range  # positions: the last of the prompt; empty where nothing is watched
    mass: np.ndarray  # int64 [groups, max_pages], as in StepOutput, of the rows up to `counted`
    counted: int = 0
    _is_open: bool = False  # pages may have to be demoted
    _kept: list[set[int]] = field(default_factory=list)  # by layer group, once the prompt is computed

    @classmethod
    def of(cls, policy: PolicyName, groups: tuple[GroupPages, ...], prompt_tokens: int, max_pages: int) -> PromptWatch:
        """Of a prompt of so many tokens, those in front of it that the sequence has counted among them."""
        if policy not in BY_ATTENTION or not any(group.seals for group in groups) or not sealed_end(max(0, prompt_tokens - 1)):
            return cls(policy, range(0), np.empty((0, 0), np.int64))
        first = max(0, prompt_tokens - WATCH_ROWS)
        return cls(policy, range(first, prompt_tokens), np.zeros((len(groups), max_pages), np.int64))

    def rows(self, start: int, end: int) -> int:
        """StepInput.watch of a chunk of the positions start .. end - 1."""
        return max(0, end - max(start, self.watched.start)) if start < self.watched.stop else 0

    def chunk_limit(self, done: int, known: int) -> int:
        """Where the next chunk ends at the latest: the prompt is computed before what comes behind it, computed again too."""
        return self.watched.stop if done < self.watched.stop else known

    def add(self, start: int, end: int, mass: np.ndarray) -> None:
        """The rows that `rows` gives for this chunk gave `mass`, int64 [groups, max_pages]."""
        if start < self.counted:  # the sequence was preempted, and is computed again
            self.mass[:] = 0
        self.mass += mass
        self.counted, self._is_open = end, True
        self._kept.clear()

    def is_due(self, length: int) -> bool:
        """Whether pages of the sequence, which has `length` tokens, may have to be demoted before its next step."""
        return self._is_open and length >= self.watched.stop

    def demotions(self, pages: SequencePages, groups: tuple[GroupPages, ...]) -> list[Demotion]:
        """What is left to be demoted when `is_due`; then, with none, it no longer is."""
        raised = pages.raised()
        if not self._kept:
            for group, (found, held) in enumerate(zip(raised, pages.held_by_group(), strict=True)):
                count = int(RAISED_SHARES[self.policy] * held)
                kept = kept_raised(self.policy, self.mass[group], pages.zones(), found, count)
                self._kept.append(set(kept.tolist()))
        left = [
            Demotion(group, page, base)
            for group, base in enumerate([each.base for each in groups])
            for page in raised[group].tolist()
            if page not in self._kept[group]
        ]
        self._is_open = bool(left)
        return left

    def extents(self, pages: SequencePages, groups: tuple[GroupPages, ...]) -> Counter[ExtentKind]:
        """What demoting takes at most of pages that are raised already, where the prompt is not computed yet. Those to come are
        counted in both forms on their way (SequencePages.extents_until)."""
        extents: Counter[ExtentKind] = Counter()
        if pages.length < self.watched.stop:
            for group, count in zip(groups, pages.raised_counts(), strict=True):
                for kind, number in extents_between(group.levels[group.base - 1], group.sealed).items():
                    extents[kind] += number * count
        return extents
