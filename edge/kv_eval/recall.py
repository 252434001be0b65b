"""What a model still finds in its pages. Owns: which documents are asked, asking, Recall. Needs: fed sequences, haystacks.
Never: their words.

A prompt is computed once, its pages sealed on the way; then each question is asked from its end, and forgotten again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from edge.comparison import log_sum_exp
from edge.contract import SEAL_TOKENS
from edge.errors import RequestError
from edge.kv_eval.chains import make_chains
from edge.kv_eval.fed_sequence import FedSequence
from edge.kv_eval.haystacks import (
    SHORTEST,
    Haystack,
    Link,
    haystack_tokens,
    make_haystack,
    question_room,
    sealed_tokens,
)
from edge.kv_eval.needles import KIND, PER_HAYSTACK, make_needles
from edge.kv_eval.noise import Paired
from edge.kv_eval.texts import Text, cut_documents, cut_texts
from edge.text.tokenizer import Tokenizer

_MOST_COMPARED = 4  # of a document one token in so many, so that the prompt is most of it
_NEEDLES_EACH = 5  # at least, before a shorter document is added for them


@dataclass(frozen=True, slots=True)
class Asked:
    """A case as it was asked."""

    kind: str
    tokens: int  # of the prompt
    depths: tuple[float, ...]  # of its facts in the sealed part of that, 0 to 1
    prefix: str  # of the last question


@dataclass(slots=True)
class Recall:
    """Cases in the order in which they were asked."""

    asked: list[Asked] = field(default_factory=list)
    right: list[bool] = field(default_factory=list)

    def counts(self, kind: str) -> tuple[int, int]:
        """Right and asked."""
        right = [is_right for asked, is_right in zip(self.asked, self.right, strict=True) if asked.kind == kind]
        return sum(right), len(right)

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(sorted({asked.kind for asked in self.asked}))

    @property
    def needles(self) -> tuple[int, int]:
        """Right and asked."""
        return self.counts(KIND)

    @property
    def chains(self) -> tuple[int, int]:
        """Right and asked, all kinds together."""
        (right, asked), all_right = self.needles, sum(self.right)
        return all_right - right, len(self.asked) - asked

    @property
    def lengths(self) -> tuple[int, ...]:
        """Of the prompts, ascending."""
        return tuple(sorted({asked.tokens for asked in self.asked}))

    def needles_where(self, tokens: int | None = None, depth: tuple[float, float] = (0.0, 1.0)) -> tuple[int, int]:
        """Right and asked of those at this length of the prompt (None: any) and in this part of it."""
        right = [
            is_right
            for asked, is_right in zip(self.asked, self.right, strict=True)
            if asked.kind == KIND and tokens in (None, asked.tokens) and depth[0] <= asked.depths[0] < depth[1]
        ]
        return sum(right), len(right)

    def needles_against(self, exact: Recall) -> Paired:
        """Needles that only one of the two found."""
        pairs = [
            (was, is_right)
            for asked, was, is_right in zip(self.asked, exact.right, self.right, strict=True)
            if asked.kind == KIND
        ]
        return Paired(sum(was and not now for was, now in pairs), sum(now and not was for was, now in pairs))

    def ask(self, sequence: FedSequence, tokenizer: Tokenizer, haystack: Haystack) -> None:
        """Every case of a haystack, of a sequence that was fed its prompt."""
        for case in haystack.cases:
            depths = tuple(depth for depth, _ in case.facts)
            self.asked.append(Asked(case.kind, haystack.stop, depths, case.links[-1].prefix))
            self.right.append(all(_holds(sequence, tokenizer, link) for link in case.links))


def make_haystacks(
    tokenizer: Tokenizer, texts: Sequence[Text], context: int, documents: int, compared: int, needles: int, seed: int
) -> tuple[Haystack, ...]:
    """Up to `documents` documents of `context` tokens, as many as the texts give, of which `compared` tokens in all are to be
    compared, a quarter of each at most: those at its end, behind its prompt. With `needles` these stand in them, and in shorter
    documents besides which end with their prompt, half and a quarter as long in turn, none shorter than SHORTEST. RequestError
    where texts or context are too short."""
    if context <= 2 * SEAL_TOKENS:
        least = 2 * SEAL_TOKENS + 1
        raise RequestError(f"--context {context}: no page is sealed before {least} tokens, all presets are exact. Ask for more")
    if not needles:
        plain = cut_documents(tokenizer, texts, context, documents)
        rows = _rows(context, compared, len(plain))
        return tuple(Haystack(document, rows, context - rows, ()) for document in plain)
    haystack_tokens(context)
    least = SHORTEST + SEAL_TOKENS
    whole = cut_texts(tokenizer, texts, context)[:documents]
    rows = _rows(context, compared, len(whole))
    stop = haystack_tokens(max(context - rows, least))
    lengths = [haystack_tokens(max(context >> 1, least)), haystack_tokens(max(context >> 2, least))]
    count = _shorter(len(whole), needles, _most_needles(tokenizer, min(stop, lengths[1])))
    places = [(text, context, rows, stop) for text in whole]
    for turn in range(count):
        tokens = lengths[turn % 2]
        texts_there = cut_texts(tokenizer, texts, tokens)
        # From the end: whole documents begin at the front.
        places.append((texts_there[-1 - turn % len(texts_there)], tokens, 0, tokens))
    haystacks = []
    for number, (text, tokens, last, end) in enumerate(places):
        count = needles // len(places) + (number < needles % len(places))
        cases = [*make_needles(count, seed + number), *make_chains(seed + number)]
        haystacks.append(make_haystack(tokenizer, text, tokens, last, end, cases))
    return tuple(haystacks)


def _rows(context: int, compared: int, documents: int) -> int:
    return max(1, min(-(-compared // documents), context // _MOST_COMPARED))


def _most_needles(tokenizer: Tokenizer, stop: int) -> int:
    """That a prompt of `stop` tokens has room for beside its chains, a quarter left to the text."""
    needles, chains = (
        [len(tokenizer.encode(f"{fact}\n", specials=False)) for case in cases for _, fact in case.facts]
        for cases in (make_needles(PER_HAYSTACK, 0), make_chains(0))
    )
    return max(1, min(PER_HAYSTACK, (3 * sealed_tokens(stop) // 4 - sum(chains)) // max(needles)))


def _shorter(documents: int, needles: int, most: int) -> int:
    """Shorter documents beside so many whole ones: no more than these, unless one would have more than `most` needles."""
    return max(0, min(documents, needles // _NEEDLES_EACH - documents), -(-needles // most) - documents)


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
    if not sequence.can_rewind(length):
        raise RequestError(
            f"a question of {len(ids)} tokens in this vocabulary frees a page behind a window. Ask for --needles 0"
        )
    wanted = np.asarray(ids[begin:])
    places = np.arange(len(wanted))
    score = float((rows[places, wanted] - log_sum_exp(rows)).sum())
    is_best = bool((rows.argmax(axis=1) == wanted).all())
    sequence.rewind(length)
    return is_best, score
