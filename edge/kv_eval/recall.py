"""What a model still finds in its pages. Owns: asking, RecallCounts. Needs: fed sequences, haystacks. Never: their words.

A document is computed once, its pages sealed on the way; then each question is asked from its end, and forgotten again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from edge.comparison import log_sum_exp
from edge.contract import SEAL_TOKENS
from edge.errors import RequestError
from edge.kv_eval.chains import make_chains
from edge.kv_eval.fed_sequence import FLOOR, FedSequence
from edge.kv_eval.haystacks import SHORTEST, Case, Haystack, Link, haystack_tokens, make_haystack, question_room
from edge.kv_eval.needles import KIND, PER_HAYSTACK, make_needles
from edge.kv_eval.texts import Text
from edge.progress import Progress
from edge.text.tokenizer import Tokenizer


@dataclass(slots=True)
class RecallCounts:
    """Cases asked and cases right, by kind."""

    asked: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)

    @property
    def needles(self) -> tuple[int, int]:
        """Right and asked."""
        return self.right[KIND], self.asked[KIND]

    @property
    def chains(self) -> tuple[int, int]:
        """Right and asked, all kinds together."""
        return self.right.total() - self.right[KIND], self.asked.total() - self.asked[KIND]


def make_haystacks(tokenizer: Tokenizer, texts: Sequence[Text], context: int, needles: int, seed: int) -> tuple[Haystack, ...]:
    """So many needles, at most PER_HAYSTACK a document, and a case of each kind of chain in each document. A third of these is
    as long as the context, a third half as long, a third a quarter; none shorter than SHORTEST."""
    haystack_tokens(context)
    haystacks = []
    for number, count in enumerate(_shares(needles)):
        tokens = haystack_tokens(max(context >> number % 3, SHORTEST + SEAL_TOKENS))
        cases = [*make_needles(count, seed + number), *make_chains(seed + number)]
        text = texts[number % len(texts)].text
        haystacks.append(make_haystack(tokenizer, text, tokens, cases, seed + number))
    return tuple(haystacks)


def measure_recall(
    sequences: Mapping[str, FedSequence], tokenizer: Tokenizer, haystacks: Sequence[Haystack], progress: Progress
) -> dict[str, RecallCounts]:
    """Every question of every haystack, of every sequence but FLOOR."""
    sequences = {preset: sequence for preset, sequence in sequences.items() if preset != FLOOR}
    found = {preset: RecallCounts() for preset in sequences}
    progress.start("needles and chains", sum(len(h.ids) for h in haystacks) * len(sequences), "tokens")
    for haystack in haystacks:
        for preset, sequence in sequences.items():
            sequence.release()
            sequence.feed_all(haystack.ids)
            for case in haystack.cases:
                found[preset].asked[case.kind] += 1
                found[preset].right[case.kind] += _is_right(sequence, tokenizer, case)
            sequence.release()
            progress.advance(len(haystack.ids))
    progress.done()
    return found


def _shares(needles: int) -> list[int]:
    """Needles of each document: as even as can be."""
    documents = -(-needles // PER_HAYSTACK)
    return [needles // documents + (number < needles % documents) for number in range(documents)]


def _is_right(sequence: FedSequence, tokenizer: Tokenizer, case: Case) -> bool:
    return all(_holds(sequence, tokenizer, link) for link in case.links)


def _holds(sequence: FedSequence, tokenizer: Tokenizer, link: Link) -> bool:
    is_best, right = _score(sequence, tokenizer, link.prefix, link.right)
    if link.wrong is None:
        return is_best
    return right > _score(sequence, tokenizer, link.prefix, link.wrong)[1]


def _score(sequence: FedSequence, tokenizer: Tokenizer, prefix: str, answer: str) -> tuple[bool, float]:
    """Whether each token of the answer is the best one where it stands, and the log-probability of all, in nats."""
    asked, ids = (tokenizer.encode(f"\n{text}", specials=False) for text in (prefix, prefix + answer))
    begin = next((i for i, (a, b) in enumerate(zip(asked, ids, strict=False)) if a != b), len(asked))
    if len(ids) > question_room():
        raise RequestError(
            f"a question of {len(ids)} tokens in this vocabulary, {question_room()} at most. Ask for --needles 0"
        )
    length = sequence.length
    # Row i tells the token behind token i, so the last token of the answer need not be computed.
    rows = sequence.feed(ids[:-1], len(ids) - begin)
    wanted = np.asarray(ids[begin:])
    places = np.arange(len(wanted))
    score = float((rows[places, wanted] - log_sum_exp(rows)).sum())
    is_best = bool((rows.argmax(axis=1) == wanted).all())
    sequence.rewind(length)
    return is_best, score
