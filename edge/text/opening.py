"""The part of a chat that is the same whatever is asked, in text and in tokens. Owns: where it ends. Needs: text. Never: pages,
files.

A prompt is tokenised as a whole, and what is asked can change the last tokens in front of it. So the opening ends a little
earlier, where tokenising what follows by itself gives the tokens of the whole: a chat that begins with it has the ids that it
would have without.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from edge.text.located import LocatedIds
from edge.text.rendered import RenderedChat
from edge.text.template import ChatTemplate, render_chat
from edge.text.tokenizer import Tokenizer

# What questions begin with: letters, space, digits, punctuation, a line end, a contraction, what combines, other scripts.
_QUESTIONS = ("What?", "x", " y", "42", "...", "-", "\n\nz", "'s", "\u0301", "\u4f60\u597d", "\U0001f600", "\u0645")
_WORD = re.compile(r"\S+\s+(?=\S)")
_FAR = 64  # characters in front of the question: no expression that cuts words looks so far ahead
_TRIED = 256  # tokens


@dataclass(frozen=True, slots=True)
class Opening:
    """Text that a rendered chat begins with, and the ids that its prompt begins with."""

    text: str
    token_ids: list[int]
    system: str  # "": none of our own
    document: str  # in front of the first message, in its turn; "": none
    token_starts: np.ndarray  # int64 [tokens], the character of `text` in which each begins


def with_document(document: str, question: str) -> str:
    """The first message of a chat about a document."""
    return f"{document}\n\n{question}"


def opening_messages(system: str, document: str, question: str) -> list[dict[str, str]]:
    """The messages of a chat up to its first question, which stands behind the document."""
    first = {"role": "user", "content": with_document(document, question) if document else question}
    return [{"role": "system", "content": system}, first] if system else [first]


def find_opening(tokenizer: Tokenizer, template: ChatTemplate, system: str, document: str) -> Opening:
    """The opening of chats with this system message and document; empty where the template writes nothing of them alike for
    each question, or none of their tokens is certain."""
    chats = [render_chat(template, opening_messages(system, document, question)) for question in _QUESTIONS]
    located = [tokenizer.encode_chat_located(chat) for chat in chats]
    same_text = _common(chat.marked for chat in chats)
    same_ids = _common(of_chat.ids for of_chat in located)
    ids, characters = located[0].ids, located[0].characters
    # Behind the place at least two words, or many characters, that are the same whatever is asked.
    words = [match.start() for match in _WORD.finditer(chats[0].marked, max(0, same_text - 4 * _FAR), same_text)]
    latest = max(same_text - _FAR, words[-2] if len(words) > 1 else 0)
    last = min(same_ids, int(np.searchsorted(characters, latest, side="right")) - 1)
    for count in range(last, max(0, last - _TRIED), -1):
        place = int(characters[count])
        if place and _goes_on(tokenizer, chats, located, place, count):
            return Opening(chats[0].text[:place], ids[:count], system, document, characters[:count])
    return Opening("", [], system, document, characters[:0])


def _common(sequences: Iterable[Sequence[object]]) -> int:
    """How many items all of them begin with."""
    first, *rest = sequences
    count = len(first)
    for other in rest:
        count = next((i for i, (a, b) in enumerate(zip(first[:count], other, strict=False)) if a != b), min(count, len(other)))
    return count


def _goes_on(
    tokenizer: Tokenizer, chats: Sequence[RenderedChat], located: Sequence[LocatedIds], place: int, count: int
) -> bool:
    """Whether what follows `place` has, by itself, the tokens behind the first `count`."""
    return all(
        tokenizer.encode_chat(chat, start=place) == of_chat.ids[count:] for chat, of_chat in zip(chats, located, strict=True)
    )
