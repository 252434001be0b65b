"""From a row of logits to a token. Owns: sampling parameters, the order of filters, random numbers. Needs: the native core,
which looks at every logit; numpy for the few that are left. Never: requests, text.

Order: repeat penalty, temperature, top-k, top-p, min-p. Random numbers are keyed by (seed, position), so a request with a
seed gives the same answer whatever else is in the batch, and a preempted request goes on as if nothing had been.
"""

from __future__ import annotations

import dataclasses
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from edge.errors import ExecutorError, RequestError

_SEEDS = 1 << 64


@dataclass(frozen=True, slots=True)
class RandomSeed:
    """No seed was given: one is drawn when the request starts, and reported."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose the next token. RequestError, with the allowed range, for values that mean nothing."""

    temperature: float = 0.0  # 0: the best token, the lowest id where several are best
    top_k: int = 0  # the best k tokens; 0: all; more than the vocabulary: all
    top_p: float = 1.0  # the fewest best tokens with this share of the probability; 1: all
    min_p: float = 0.0  # tokens with at least this share of the best one's probability; 0: all
    repeat_penalty: float = 1.0  # logits of tokens that were there: divided where positive, multiplied where not; 1: off
    seed: int | RandomSeed = RandomSeed()
    logprobs: bool = False  # report the log-probability of each token, before any of the above

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, 0.0 <= self.temperature < math.inf, "0 or more")
        _check("top_k", self.top_k, self.top_k >= 0, "0 (off) or more")
        _check("top_p", self.top_p, 0.0 < self.top_p <= 1.0, "above 0, at most 1 (off)")
        _check("min_p", self.min_p, 0.0 <= self.min_p <= 1.0, "0 (off) to 1")
        _check("repeat_penalty", self.repeat_penalty, 0.01 <= self.repeat_penalty <= 100.0, "0.01 to 100; 1 is off")
        if isinstance(self.seed, int):
            _check("seed", self.seed, 0 <= self.seed < _SEEDS, f"0 to {_SEEDS - 1}")

    def with_drawn_seed(self) -> SamplingParams:
        """These parameters with a seed: their own, or one drawn now."""
        seed = secrets.randbits(32) if isinstance(self.seed, RandomSeed) else self.seed
        return dataclasses.replace(self, seed=seed)


def sample(logits: np.ndarray, params: SamplingParams, history: Sequence[int], position: int) -> int:
    """The token for `position`, the count of tokens in front of it. `logits` float32 [vocabulary] is left as it is; `history`
    holds those tokens and is only read for the repeat penalty. ExecutorError where the logits are not finite numbers
    (-inf is: a token that must not come), for what was computed is then worth nothing."""
    assert isinstance(params.seed, int), "draw the seed first"
    core = _core()
    logits = _penalised(logits, params.repeat_penalty, history)
    best, top = core.best_logit(logits)
    if not math.isfinite(top):
        raise ExecutorError(f"logits at position {position}: the largest is {top}. The engine computes wrongly: edge verify")
    if params.temperature == 0.0 or params.top_k == 1:
        return int(best)
    ids, weights = _candidates(_Scores(logits, top, min(max(params.temperature, 1e-30), 1e30)), params)
    return int(ids[_draw(weights, params.seed, position)])


def logprob(logits: np.ndarray, token: int) -> float | None:
    """Natural log of the probability of `token` under `logits` float32 [vocabulary]; None where that is 0."""
    top = _core().best_logit(logits)[1]
    value = float(logits[token]) - top - math.log(_core().sum_exponentials(logits, top, 1.0))
    return value if math.isfinite(value) else None


@cache
def _core() -> Any:
    from edge.executors.native_core import load_core

    return load_core()


@dataclass(frozen=True, slots=True)
class _Scores:
    """(logits - top) / temperature in float32, the best of them 0, so that any temperature gives numbers: -inf, but no NaN."""

    logits: np.ndarray  # float32 [vocabulary]
    top: float
    temperature: float

    def best(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids int32 and weights, exp(score), of the `count` best scores, best first; the lower id first where two are equal."""
        ids, scores = np.empty(count, np.int32), np.empty(count, np.float32)
        _core().best_scores(self.logits, self.top, self.temperature, ids, scores)
        return ids, np.exp(scores)

    def weight(self) -> float:
        """Of all together."""
        weight: float = _core().sum_exponentials(self.logits, self.top, self.temperature)
        return weight

    def all(self) -> np.ndarray:
        with np.errstate(over="ignore"):
            return (self.logits - np.float32(self.top)) / np.float32(self.temperature)


def _penalised(logits: np.ndarray, penalty: float, history: Sequence[int]) -> np.ndarray:
    if penalty == 1.0 or not history:
        return logits
    seen = np.asarray(history, np.int64)
    values = logits[seen]
    scores = logits.copy()
    # A token that was there often is written often, with the same value: it is punished once.
    with np.errstate(over="ignore"):
        scores[seen] = np.where(values > 0, values / np.float32(penalty), values * np.float32(penalty))
    return scores


def _candidates(scores: _Scores, params: SamplingParams) -> tuple[np.ndarray, np.ndarray]:
    """Ids and weights (not normalised) that pass the filters."""
    if 0 < params.top_k < len(scores.logits):
        ids, weights = scores.best(params.top_k)
        wanted = params.top_p * float(weights.sum(dtype=np.float64))
    elif params.top_p < 1.0:
        wanted = params.top_p * scores.weight()
        ids, weights = _nucleus(scores, wanted)
    else:
        values = scores.all()
        ids = np.flatnonzero(values >= (math.log(params.min_p) if params.min_p > 0.0 else -math.inf))
        return ids, np.exp(values[ids])
    keep = int(np.count_nonzero(weights >= params.min_p))
    if params.top_p < 1.0:
        keep = min(keep, _count_to(weights, wanted))
    return ids[:keep], weights[:keep]


def _nucleus(scores: _Scores, wanted: float) -> tuple[np.ndarray, np.ndarray]:
    """The best tokens, enough of them to weigh `wanted`. A few hundred nearly always do, and all would have to be sorted."""
    count = 256
    while True:
        count = min(count, len(scores.logits))
        ids, weights = scores.best(count)
        if count == len(scores.logits) or float(weights.sum(dtype=np.float64)) >= wanted:
            return ids, weights
        count *= 16


def _count_to(weights: np.ndarray, wanted: float) -> int:
    """How many weights from the front add up to `wanted`; all where they do not. At least one."""
    return min(len(weights), int(np.searchsorted(np.cumsum(weights, dtype=np.float64), wanted)) + 1)


def _draw(weights: np.ndarray, seed: int, position: int) -> int:
    """An index, with a probability in proportion to its weight."""
    sums = np.cumsum(weights, dtype=np.float64)
    uniform = np.random.Generator(np.random.Philox(key=seed, counter=position)).random()
    return min(int(np.searchsorted(sums, uniform * sums[-1], side="right")), len(weights) - 1)


def _check(name: str, value: float, is_right: bool, allowed: str) -> None:
    if not is_right:  # NaN is in no range
        raise RequestError(f"{name} is {value}. Allowed: {allowed}")
