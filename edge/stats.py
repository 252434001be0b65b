"""What a runtime has done so far, in numbers. Owns: RuntimeStats. Needs: pages' counts. Never: a clock."""

from __future__ import annotations

from dataclasses import dataclass, replace

from edge.pages.pool import PoolCounts


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

    def with_step(self, prefill: int, decode: int, seconds: float, bytes_copied: int) -> RuntimeStats:
        """These figures and one more step with so many tokens of each kind."""
        return replace(
            self,
            steps=self.steps + 1,
            prefill_tokens=self.prefill_tokens + prefill,
            prefill_seconds=self.prefill_seconds + seconds * prefill / (prefill + decode),
            decode_tokens=self.decode_tokens + decode,
            decode_seconds=self.decode_seconds + seconds * decode / (prefill + decode),
            bytes_copied=self.bytes_copied + bytes_copied,
        )
