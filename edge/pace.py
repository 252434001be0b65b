"""How fast tokens come. Owns: the times of one answer. Needs: nothing. Never: a clock; who counts brings the time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Pace:
    """One answer so far. Times in seconds, of time.perf_counter."""

    started_at: float
    tokens: int = 0
    first_token_at: float | None = None
    last_token_at: float | None = None

    @property
    def time_to_first_token(self) -> float | None:
        """Seconds from the start, waiting included; None before the first token."""
        return None if self.first_token_at is None else self.first_token_at - self.started_at

    @property
    def decode_rate(self) -> float | None:
        """Tokens a second behind the first; None before there are two."""
        if self.first_token_at is None or self.last_token_at is None or self.tokens < 2:
            return None
        return (self.tokens - 1) / (self.last_token_at - self.first_token_at)

    def count(self, now: float) -> None:
        """One more token."""
        self.tokens += 1
        self.last_token_at = now
        if self.first_token_at is None:
            self.first_token_at = now
