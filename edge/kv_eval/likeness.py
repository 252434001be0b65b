"""Presets beside `exact` over the same documents, step by step. Owns: the order of the steps, Likeness. Needs: fed sequences,
comparison. Never: opens engines, judges.

All sequences take each step in turn, so that a busy machine slows all of them alike, and only the logits of one step stand. The
last tokens of a document go one by one, as decoding does it; with a batch-invariant engine a chunk gives the same.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from edge.comparison import Comparison
from edge.contract import SEAL_TOKENS
from edge.kv_eval.fed_sequence import FedSequence, spans
from edge.kv_eval.texts import Document
from edge.progress import Progress


@dataclass(slots=True)
class Likeness:
    """What a preset gave over all documents."""

    comparison: Comparison = field(default_factory=Comparison)  # `exact` against itself has no rows
    prefill_tokens: int = 0  # of steps without logits
    prefill_seconds: float = 0.0
    decode_seconds: list[float] = field(default_factory=list)  # of each token that went alone
    kv_bytes: dict[str, int] = field(default_factory=dict)  # by page format, at the end of the last document

    @property
    def prefill_rate(self) -> float | None:
        """Tokens a second; None where every step gave logits."""
        return self.prefill_tokens / self.prefill_seconds if self.prefill_seconds else None

    @property
    def decode_rate(self) -> float | None:
        """Tokens a second, by the median token; None where none went alone."""
        return 1 / statistics.median(self.decode_seconds) if self.decode_seconds else None


def measure_likeness(
    sequences: Mapping[str, FedSequence], documents: Sequence[Document], rows: int, singly: int, progress: Progress
) -> dict[str, Likeness]:
    """Runs each document through every sequence; `exact` is among them. The logits of the last `rows` tokens of each are
    compared, the last `singly` of these are decoded one by one."""
    found = {preset: Likeness() for preset in sequences}
    progress.start("presets beside exact", sum(len(d.ids) for d in documents) * len(sequences), "tokens")
    for document in documents:
        for sequence in sequences.values():
            sequence.release()
        for begin, end in _steps(len(document.ids), rows, singly):
            _step(sequences, found, document.ids, begin, end, rows, singly, progress)
        for preset, sequence in sequences.items():
            found[preset].kv_bytes = sequence.bytes_by_format()
            sequence.release()
    progress.done()
    return found


def _steps(count: int, rows: int, singly: int) -> list[tuple[int, int]]:
    """Spans that end at seal borders and where logits begin; one token each at the end."""
    assert 0 <= singly <= rows <= count
    parts = (spans(0, count - rows), spans(count - rows, count - singly))
    return [*parts[0], *parts[1], *((at, at + 1) for at in range(count - singly, count))]


def _step(
    sequences: Mapping[str, FedSequence],
    found: Mapping[str, Likeness],
    ids: Sequence[int],
    begin: int,
    end: int,
    rows: int,
    singly: int,
    progress: Progress,
) -> None:
    asked = end - begin if begin >= len(ids) - rows else 0
    following = np.asarray(ids[begin + 1 : end + 1], dtype=np.int64)
    exact: np.ndarray | None = None
    for preset in sorted(sequences, key=lambda name: name != "exact"):
        sequence, likeness = sequences[preset], found[preset]
        logits = sequence.feed(ids[begin:end], asked)
        if exact is None:
            exact = logits.copy() if asked else logits  # the next preset writes its own where these are
        elif asked:
            likeness.comparison.add(exact, logits, following)
        if not asked and end - begin == SEAL_TOKENS:
            likeness.prefill_tokens += end - begin
            likeness.prefill_seconds += sequence.seconds
        if begin >= len(ids) - singly:
            likeness.decode_seconds.append(sequence.seconds)
        progress.advance(end - begin)
