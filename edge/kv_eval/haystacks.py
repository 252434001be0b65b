"""Documents with facts in them, and questions about these. Owns: Haystack, where facts stand. Needs: a tokenizer. Never: what
the facts are (needles, chains), engines.

A question is answer-prefixed: the sentence of the fact up to the answer, which a model without instruction tuning goes on with
too. A haystack ends a few tokens behind a seal border, so that questions pass none: its pages are sealed before any is known,
and each question starts from the same pages.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from edge.contract import PAGE_TOKENS, SEAL_TOKENS
from edge.errors import RequestError
from edge.pages.geometry import sealed_end
from edge.text.tokenizer import Tokenizer

SHORTEST = 4 * SEAL_TOKENS  # of a haystack, in tokens: two blocks are sealed
_BEHIND_BORDER = 8  # tokens
_LONGEST_PIECE = 160  # tokens: paragraphs beyond are cut


@dataclass(frozen=True, slots=True)
class Link:
    """A sentence and how it goes on: right, and, where it is a choice, wrong."""

    prefix: str
    right: str
    wrong: str | None = None  # None: every token of `right` must be the best one


@dataclass(frozen=True, slots=True)
class Case:
    """Facts, each at a share of the sealed part of the document (0 to 1), and what is asked of them: all links must hold."""

    kind: str
    facts: tuple[tuple[float, str], ...]
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Haystack:
    ids: tuple[int, ...]  # BOS included
    cases: tuple[Case, ...]


def haystack_tokens(context: int) -> int:
    """Tokens of a haystack for a context of so many. RequestError where that is too short for sealed pages."""
    tokens = context // SEAL_TOKENS * SEAL_TOKENS - SEAL_TOKENS + _BEHIND_BORDER
    if tokens < SHORTEST:
        least = SHORTEST + SEAL_TOKENS
        raise RequestError(f"--context {context}: needles need {least} tokens, so that pages are sealed. Or: --needles 0")
    return tokens


def question_room() -> int:
    """Tokens that a question with its answer may have."""
    return SEAL_TOKENS - _BEHIND_BORDER


def make_haystack(tokenizer: Tokenizer, text: str, tokens: int, cases: Sequence[Case], seed: int) -> Haystack:
    """`tokens` ids of `text`, from a place that `seed` draws and round its end, with the facts of `cases` between paragraphs.
    Facts stand behind the first page, and before the pages that a question reads unsealed."""
    head = tokenizer.frame([])
    sealed = sealed_end(tokens) * PAGE_TOKENS
    facts = sorted((share, fact) for case in cases for share, fact in case.facts)
    wanted = [
        (PAGE_TOKENS + share * (sealed - PAGE_TOKENS), tokenizer.encode(f"{fact}\n", specials=False)) for share, fact in facts
    ]
    pieces = _pieces(tokenizer, text)
    at = random.Random(seed).randrange(len(pieces))
    ids = list(head)
    while len(ids) < tokens:
        # A fact goes in before the paragraph that would carry it past its place, so that it ends sealed.
        piece = pieces[at % len(pieces)]
        if wanted and len(ids) >= PAGE_TOKENS and len(ids) + len(piece) > wanted[0][0]:
            ids += wanted.pop(0)[1]
            continue
        ids += piece
        at += 1
    assert not wanted, "a haystack shorter than its facts"
    return Haystack(tuple(ids[:tokens]), tuple(cases))


def _pieces(tokenizer: Tokenizer, text: str) -> list[list[int]]:
    """Ids of each paragraph with its line end; RequestError for a text of white space."""
    pieces: list[list[int]] = []
    for line in text.splitlines():
        ids = tokenizer.encode(f"{line}\n", specials=False)
        pieces += [ids[begin : begin + _LONGEST_PIECE] for begin in range(0, len(ids), _LONGEST_PIECE)]
    if not text.strip() or not pieces:
        raise RequestError("--text: nothing but white space. Give a text file")
    return pieces
