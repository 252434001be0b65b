"""How long `measure_kv` will take. Owns: the estimate. Needs: fed sequences. Never: prints.

A step's time grows with its position in a straight line, so two chunks of each preset tell it, one at the front and one at the
end of pages that nobody computed. Policies of a preset take what it takes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edge.comparison import Comparison
from edge.contract import SEAL_TOKENS
from edge.kv_eval.fed_sequence import FLOOR, FedSequence, reading_name
from edge.kv_eval.forms import Form
from edge.kv_eval.haystacks import Haystack

_QUESTION = 24  # tokens of a question with its answer, about
_TRIES = 3
_FEEDS = 3.0  # feeds for a chain; a needle takes one


@dataclass(frozen=True, slots=True)
class Clock:
    """Seconds of one preset."""

    front: float  # of a chunk of 128 tokens at the front, without logits
    end: float  # of one behind `tokens`
    tokens: int
    compared: float  # of one there whose logits are compared, beyond that
    single: float  # of a token by itself there
    question: float

    def document(self, count: int, rows: int, singly: int) -> float:
        """Of `count` tokens, `rows` of them compared and of these `singly` one by one."""
        chunk = self.front + (self.end - self.front) * count / 2 / self.tokens
        return (count - singly) / SEAL_TOKENS * chunk + rows / SEAL_TOKENS * self.compared + singly * self.single


def time_preset(sequence: FedSequence, tokens: int, memory: np.ndarray) -> Clock:
    """Of an empty sequence that may have `tokens` tokens, which it is again afterwards."""
    last = (tokens - 1) // SEAL_TOKENS * SEAL_TOKENS
    count = tokens - last

    def seconds(place: int, ids: int, rows: int) -> float:
        """The best of some: a machine with other work makes a step longer, never shorter."""
        return min(_step(sequence, memory, place, ids, rows) for _ in range(_TRIES))

    front = seconds(0, min(tokens, SEAL_TOKENS), 0)
    end = seconds(last, count, 0) * SEAL_TOKENS / count
    single, question = seconds(last, 1, 1), seconds(last, min(_QUESTION, count), min(_QUESTION, count) // 3)
    compared = seconds(last, count, count) * SEAL_TOKENS / count - end
    sequence.release()
    return Clock(front, end, max(1, last), max(0.0, compared), single, question)


def _step(sequence: FedSequence, memory: np.ndarray, place: int, ids: int, rows: int) -> float:
    """Of so many tokens at a place, and of comparing their logits."""
    sequence.begin()
    sequence.pretend(place, memory)
    started = time.perf_counter()
    logits = sequence.feed([0] * ids, rows)
    if rows > 1:
        Comparison().add(logits.copy(), logits, np.zeros(rows, np.int64))
    return time.perf_counter() - started


def estimate_seconds(
    sequences: Mapping[str, FedSequence],
    forms: Sequence[Form],
    haystacks: Sequence[Haystack],
    singly: int,
    memory: np.ndarray,
) -> float:
    """Of all documents through all sequences; of the tokens to be compared the last `singly` go one by one. `memory` is the
    pool's."""
    presets = {form.name: form.preset for form in forms} | {reading_name(form.preset): form.preset for form in forms}
    clocks: dict[str, Clock] = {}
    longest = max(len(haystack.document.ids) for haystack in haystacks)
    total = 0.0
    for name in sequences:
        preset = "exact" if name == FLOOR else presets[name]
        if preset not in clocks:
            clocks[preset] = time_preset(sequences[preset], longest, memory)
        clock = clocks[preset]
        for haystack in haystacks:
            if name == FLOOR and not haystack.rows:
                continue
            total += clock.document(len(haystack.document.ids), haystack.rows, min(singly, haystack.rows))
            if name != FLOOR:
                feeds = sum(1.0 if len(case.facts) == 1 else _FEEDS for case in haystack.cases)
                total += feeds * clock.question
    return total
