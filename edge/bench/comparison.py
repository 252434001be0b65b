"""Engines in turn on one load. Owns: the order of the rounds, bests, medians, ratios. Needs: children. Never: a terminal.

A busy machine only ever slows a run, so the best of several rounds is what an engine can do; the median says how calm it was.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from edge.bench.child import run_child

OURS = "edge-zero"
FIGURES = ("prefill_tokens_per_s", "decode_tokens_per_s", "ttft_s", "load_s", "peak_rss_bytes")
RATIOS = ("prefill_tokens_per_s", "decode_tokens_per_s", "peak_rss_bytes")
CHILD_SECONDS = 1800.0  # of one measurement; a large model on a small board takes minutes


@dataclass(frozen=True, slots=True)
class Contender:
    """One row: a command that prints figures as one JSON line. `failure`: why there is none to run."""

    name: str
    command: tuple[str, ...] = ()
    job: dict[str, Any] = field(default_factory=dict)  # its standard input, as JSON
    mend: str = ""  # the command that mends a missing engine
    failure: str | None = None


@dataclass(slots=True)
class Row:
    """What became of a contender."""

    contender: Contender
    runs: list[dict[str, Any]] = field(default_factory=list)
    failure: str | None = None
    mend: str = ""

    def figure(self, key: str, pick: Callable[[list[float]], float]) -> float | None:
        values = [run[key] for run in self.runs if run.get(key) is not None]
        return pick(values) if values else None

    def best(self, key: str) -> float | None:
        return self.figure(key, max if key.endswith("_per_s") else min)

    def median(self, key: str) -> float | None:
        return self.figure(key, statistics.median)

    def as_dict(self) -> dict[str, Any]:
        return {
            "best": {key: self.best(key) for key in FIGURES},
            "median": {key: self.median(key) for key in FIGURES},
            "failure": self.failure,
            "mend": self.mend or None,
            "runs": self.runs,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """All rows of one load."""

    prompt_tokens: int
    decode_tokens: int
    rows: tuple[Row, ...]

    @property
    def ours(self) -> Row:
        return next(row for row in self.rows if row.contender.name == OURS)

    def ratio(self, row: Row, key: str) -> float | None:
        """Ours / theirs, of the bests."""
        ours, theirs = self.ours.best(key), row.best(key)
        return None if ours is None or not theirs else ours / theirs

    def as_dict(self) -> dict[str, Any]:
        others = [row for row in self.rows if row is not self.ours]
        return {
            "prompt_tokens": self.prompt_tokens,
            "decode_tokens": self.decode_tokens,
            "engines": {row.contender.name: row.as_dict() for row in self.rows},
            "ours_over_theirs": {row.contender.name: {key: self.ratio(row, key) for key in RATIOS} for row in others},
        }


def compare(contenders: Sequence[Contender], rounds: int, prompt: int, decode: int) -> Iterator[Comparison]:
    """Runs all contenders in turn, `rounds` times, and gives the state after each run, complete in the end. One that fails is
    not tried again; what it had measured stays."""
    rows = tuple(Row(contender, failure=contender.failure, mend=contender.mend if contender.failure else "")
                 for contender in contenders)  # fmt: skip
    state = Comparison(prompt, decode, rows)
    for _ in range(rounds):
        for row in rows:
            if row.failure is None:
                _run(row)
            yield state


def _run(row: Row) -> None:
    figures = run_child(row.contender.command, json.dumps(row.contender.job), CHILD_SECONDS)
    if "error" in figures:
        row.failure = " ".join(str(figures["error"]).splitlines())
        row.mend = row.contender.mend if figures.get("is_missing") else ""
    else:
        row.runs.append(figures)
