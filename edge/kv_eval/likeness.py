"""Forms beside `exact` over the same documents, step by step. Owns: the order of the steps, Likeness. Needs: fed sequences,
comparison. Never: opens engines, judges.

All sequences take each step in turn, so that a busy machine slows all of them alike, and only the logits of one step stand. The
last tokens of a document go one by one, as decoding does it; with a batch-invariant engine a chunk gives the same.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from edge.comparison import Comparison
from edge.contract import SEAL_TOKENS
from edge.kv_eval.fed_sequence import FedSequence, spans
from edge.kv_eval.noise import Blocks
from edge.kv_eval.texts import Document
from edge.progress import Progress


@dataclass(slots=True)
class Likeness:
    """What a form gave over all documents."""

    comparison: Comparison = field(default_factory=Comparison)  # `exact` against itself has no rows
    prefill_tokens: int = 0  # of steps without logits
    prefill_seconds: float = 0.0
    decode_seconds: list[float] = field(default_factory=list)  # of each token that went alone
    kv_bytes: dict[str, int] = field(default_factory=dict)  # by page format, at the end of the last document
    kl_parts: dict[tuple[int, int], tuple[float, int]] = field(default_factory=dict)  # sum, rows by document and seal block

    @property
    def prefill_rate(self) -> float | None:
        """Tokens a second; None where every step gave logits."""
        return self.prefill_tokens / self.prefill_seconds if self.prefill_seconds else None

    @property
    def decode_rate(self) -> float | None:
        """Tokens a second, by the median token; None where none went alone."""
        return 1 / statistics.median(self.decode_seconds) if self.decode_seconds else None

    @property
    def blocks(self) -> Blocks:
        """KL by stretch of 128 tokens."""
        return Blocks(*(tuple(column) for column in zip(*self.kl_parts.values(), strict=True)))

    def compare(self, number: int, begin: int, exact: np.ndarray, logits: np.ndarray, following: np.ndarray) -> None:
        """Rows of document `number` from position `begin` on, up to a seal border."""
        before, place = self.comparison.kl_sum, (number, begin // SEAL_TOKENS)
        self.comparison.add(exact, logits, following)
        total, rows = self.kl_parts.get(place, (0.0, 0))
        self.kl_parts[place] = total + self.comparison.kl_sum - before, rows + len(logits)


def measure_likeness(
    sequences: Mapping[str, FedSequence], documents: Sequence[Document], rows: int, singly: int, progress: Progress
) -> dict[str, Likeness]:
    """Runs each document through every sequence; `exact` is among them. The logits of the last `rows` tokens of each are
    compared, the last `singly` of these are decoded one by one."""
    found = {name: Likeness() for name in sequences}
    progress.start("presets beside exact", sum(len(d.ids) for d in documents) * len(sequences), "tokens")
    for number, document in enumerate(documents):
        run_document(sequences, found, number, document, rows, singly, progress)
    progress.done()
    return found


def run_document(
    sequences: Mapping[str, FedSequence],
    found: Mapping[str, Likeness],
    number: int,
    document: Document,
    rows: int,
    singly: int,
    progress: Progress,
    stop: int | None = None,
    ask: Callable[[str, FedSequence], None] = lambda name, sequence: None,
) -> None:
    """One document, the last `rows` of which are compared. Its prompt ends behind `stop` tokens, by default where that begins;
    `ask` gets every sequence there, and leaves it as it was."""
    count, stop = len(document.ids), len(document.ids) - rows if stop is None else stop
    for sequence in sequences.values():
        sequence.begin(document.zones, stop)
    for begin, end in _steps(count, rows, singly, stop):
        _step(sequences, found, number, document.ids, begin, end, rows, singly, progress)
        if end == stop:
            for name, sequence in sequences.items():
                sequence.end_prefill()
                ask(name, sequence)
    for name, sequence in sequences.items():
        found[name].kv_bytes = sequence.bytes_by_format() if rows else found[name].kv_bytes
        sequence.release()


def _steps(count: int, rows: int, singly: int, stop: int) -> list[tuple[int, int]]:
    """Spans that end at seal borders, where logits begin and at `stop`; one token each at the end."""
    assert 0 <= singly <= rows <= count
    cuts = sorted({0, count - rows, min(stop, count - singly), count - singly})
    parts = [span for begin, end in pairwise(cuts) for span in spans(begin, end)]
    return [*parts, *((at, at + 1) for at in range(count - singly, count))]


def _step(
    sequences: Mapping[str, FedSequence],
    found: Mapping[str, Likeness],
    number: int,
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
    for name in sorted(sequences, key=lambda name: name != "exact"):
        sequence, likeness = sequences[name], found[name]
        logits = sequence.feed(ids[begin:end], asked)
        if exact is None:
            exact = logits.copy() if asked else logits  # the next form writes its own where these are
        elif asked:
            likeness.compare(number, begin, exact, logits, following)
        if not asked and end - begin == SEAL_TOKENS:
            likeness.prefill_tokens += end - begin
            likeness.prefill_seconds += sequence.seconds
        if begin >= len(ids) - singly:
            likeness.decode_seconds.append(sequence.seconds)
        progress.advance(end - begin)
