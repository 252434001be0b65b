"""Times one prompt and its answer on an open runtime. Owns: the ids, the clock, Measured. Needs: runtime. Never: the limit.

No tokenizer is opened and nothing is drawn while it runs: peak memory is one of the figures.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edge.monitors.memory import process_memory

if TYPE_CHECKING:
    from edge.runtime import Runtime

WARM_UP_TOKENS = 8
HASHED_TOKENS = 16
_FIRST_ID, _LAST_ID = 100, 40000  # past the control tokens at the front of most vocabularies


@dataclass(frozen=True, slots=True)
class Round:
    """One prompt and its answer, in seconds."""

    first_token: float
    decode: float  # all tokens behind the first one
    decode_engine: float  # of these, inside the engine


@dataclass(frozen=True, slots=True)
class Measured:
    prompt_tokens: int
    decode_tokens: int
    rounds: tuple[Round, ...]
    peak_rss_bytes: int | None
    logits_sha256: str

    def best(self, figure: Callable[[Round], float]) -> float:
        """The least seconds: a busy machine only ever slows a round."""
        return min(figure(row) for row in self.rounds)

    def median(self, figure: Callable[[Round], float]) -> float:
        return statistics.median(figure(row) for row in self.rounds)


def prompt_ids(vocab_size: int, count: int) -> list[int]:
    """The same random ids for every engine and every run."""
    draw = random.Random(0)
    first = _FIRST_ID if vocab_size > _FIRST_ID else 0
    return [draw.randrange(first, min(_LAST_ID, vocab_size)) for _ in range(count)]


def measure(runtime: Runtime, prompt: int, decode: int, rounds: int) -> Measured:
    """`rounds` times a prompt of `prompt` tokens and `decode` tokens behind the first one of its answer."""
    from edge.sampling import SamplingParams

    ids, greedy = prompt_ids(runtime.spec.vocab_size, prompt), SamplingParams()
    for _ in runtime.generate(ids[:WARM_UP_TOKENS], greedy, 1):
        pass
    rows = []
    for _ in range(rounds):
        before = runtime.stats.decode_seconds
        start = time.perf_counter()
        moments = [time.perf_counter() for _ in runtime.generate(ids, greedy, decode + 1)]
        rows.append(Round(moments[0] - start, moments[-1] - moments[0], runtime.stats.decode_seconds - before))
    peak = process_memory().peak  # before the logits are hashed and the machine is measured, with buffers of their own
    return Measured(prompt, decode, tuple(rows), peak, _logits_hash(runtime, ids))


def _logits_hash(runtime: Runtime, ids: list[int]) -> str:
    """SHA-256 of the logits of the first tokens, decoded one by one: two engines that compute alike print the same."""
    import hashlib

    from edge.teacher import Teacher

    count = min(HASHED_TOKENS, len(ids))
    digest = hashlib.sha256()
    for rows in Teacher(runtime.executor, runtime.spec, max_tokens=count, chunk=1).rows(ids[:count]):
        digest.update(rows.tobytes())
    return digest.hexdigest()
