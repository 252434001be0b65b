"""Documents with facts in them, and questions about these. Owns: Haystack, where facts stand. Needs: a tokenizer. Never: what
the facts are (needles, chains), engines.

A question is answer-prefixed: the sentence of the fact up to the answer, which a model without instruction tuning goes on with
too. It is asked a few tokens behind a seal border, so that questions pass none: the pages with facts are sealed before any is
known, and each question starts from the same pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edge.contract import PAGE_TOKENS, SEAL_TOKENS
from edge.errors import RequestError
from edge.kv_eval.texts import Document, Text, cut_text, frame_document
from edge.pages.geometry import sealed_end
from edge.text.located import LocatedIds
from edge.text.tokenizer import Tokenizer

SHORTEST = 4 * SEAL_TOKENS  # of a haystack, in tokens: two blocks are sealed
# Tokens. With windows of whole pages the next token frees no page, nor do the PAGE_TOKENS - 1 behind it.
_BEHIND_BORDER = PAGE_TOKENS - 1
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
    document: Document
    rows: int  # its last tokens, whose logits are compared; 0: it is asked alone
    stop: int  # tokens of it that are the prompt; the cases are asked behind them
    cases: tuple[Case, ...]  # none: nothing is asked


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


def sealed_tokens(stop: int) -> int:
    """Of a haystack that is asked behind `stop` tokens, those in which facts stand."""
    return sealed_end(stop) * PAGE_TOKENS - PAGE_TOKENS


def make_haystack(tokenizer: Tokenizer, text: Text, tokens: int, rows: int, stop: int, cases: Sequence[Case]) -> Haystack:
    """`tokens` ids of `text`, from its front and round its end, with the facts of `cases` between paragraphs. Facts stand
    behind the first page, and before the pages that a question behind `stop` tokens reads unsealed."""
    facts = sorted((share, fact) for case in cases for share, fact in case.facts)
    wanted = [(PAGE_TOKENS + share * sealed_tokens(stop), _line(tokenizer, text.name, fact)) for share, fact in facts]
    room, count = tokens - len(tokenizer.frame([])), 0
    parts: list[tuple[Text, LocatedIds]] = []
    pieces = _pieces(tokenizer, text)
    piece = next(pieces)
    while count < room:
        # A fact goes in before the paragraph that would carry it past its place, so that it ends sealed.
        if wanted and count >= PAGE_TOKENS and count + len(piece[1].ids) > wanted[0][0]:
            parts.append(wanted.pop(0)[1])
        else:
            parts.append(piece)
            piece = next(pieces)
        count += len(parts[-1][1].ids)
    if wanted:
        raise RequestError(f"{len(facts)} facts do not fit into {tokens} tokens of this vocabulary. Ask for --needles 0")
    document = frame_document(tokenizer, *cut_text(*_joined(parts), 0, room))
    return Haystack(document, rows, stop, tuple(cases))


def _joined(parts: Sequence[tuple[Text, LocatedIds]]) -> tuple[Text, LocatedIds]:
    (first, joined), characters = parts[0], len(parts[0][0].text)
    for text, located in parts[1:]:
        joined, characters = joined.followed_by(located, characters), characters + len(text.text)
    return Text(first.name, "".join(text.text for text, _ in parts)), joined


def _line(tokenizer: Tokenizer, name: str, line: str) -> tuple[Text, LocatedIds]:
    return Text(name, f"{line}\n"), tokenizer.encode_located(f"{line}\n", specials=False)


def _pieces(tokenizer: Tokenizer, text: Text) -> Iterator[tuple[Text, LocatedIds]]:
    """Each paragraph with its line end, again and again; RequestError for a text of white space."""
    if not text.text.strip():
        raise RequestError("--text: nothing but white space. Give a text file")
    while True:
        for line in text.text.splitlines():
            paragraph, located = _line(tokenizer, text.name, line)
            for begin in range(0, len(located.ids), _LONGEST_PIECE):
                yield cut_text(paragraph, located, begin, min(begin + _LONGEST_PIECE, len(located.ids)))
