"""What a runtime has done so far, in numbers. Owns: RuntimeStats, PoolWatch. Needs: a step's plan. Never: a clock, a log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from edge.pages.geometry import GroupPages
from edge.pages.pool import PoolCounts
from edge.request import Request
from edge.scheduler.state import StepPlan
from edge.units import human_bytes


@dataclass(frozen=True, slots=True)
class RuntimeStats:
    """Since the runtime was opened. The seconds of a step that mixes both kinds are shared by tokens."""

    pool: PoolCounts
    steps: int = 0
    prefill_tokens: int = 0  # of prompts, and of answers that were computed again
    prefill_seconds: float = 0.0
    decode_tokens: int = 0
    decode_seconds: float = 0.0
    preemptions: int = 0
    bytes_copied: int = 0  # by page moves; the preset `exact` has none

    def with_step(
        self, step_plan: StepPlan, requests: Sequence[Request], groups: tuple[GroupPages, ...], seconds: float
    ) -> RuntimeStats:
        """These figures and one more step; `requests` are those of its chunks, before they got their tokens."""
        sizes = [chunk.end - chunk.start for chunk in step_plan.chunks]
        decode = sum(size == 1 and bool(request.token_ids) for request, size in zip(requests, sizes, strict=True))
        prefill = sum(sizes) - decode
        return replace(
            self,
            steps=self.steps + 1,
            prefill_tokens=self.prefill_tokens + prefill,
            prefill_seconds=self.prefill_seconds + seconds * prefill / (prefill + decode),
            decode_tokens=self.decode_tokens + decode,
            decode_seconds=self.decode_seconds + seconds * decode / (prefill + decode),
            bytes_copied=self.bytes_copied + sum(groups[move.group].extent(move.value).bytes for move in step_plan.page_moves),
        )


@dataclass(slots=True)
class PoolWatch:
    """Tells once that a pool is nearly full. One that holds all that may be asked of it may fill up: that is no news."""

    pool_bytes: int
    needed_bytes: int  # for all that may be asked of it
    share: float  # of the pool, 0 to 1; more in use is news
    _is_told: bool = False

    def news(self, used_bytes: int) -> str | None:
        """What is to be told where so much is in use."""
        is_full = used_bytes > self.share * self.pool_bytes
        if self._is_told or not is_full or self.pool_bytes >= self.needed_bytes:
            return None
        self._is_told = True
        return f"pool: {100 * used_bytes / self.pool_bytes:.0f} % of {human_bytes(self.pool_bytes)} in use"
