"""Which token holds a character. Owns: places of tokens in the text that was given. Needs: numpy. Never: ids, merging.

A place is a character of the text and a byte of that: tokens of byte-level vocabularies begin inside of characters, those of a
character that no token covers too. Where Unicode's NFC changed the text, a place is that of the character from which the
normalised one came.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_SHIFT = 4  # a place is character << 4 | byte: one character becomes at most 3 of 4 bytes in NFC
_MASK = (1 << _SHIFT) - 1


@dataclass(frozen=True, slots=True)
class LocatedIds:
    """Token ids, and where the text of each begins."""

    ids: list[int]
    places: np.ndarray  # int64 [tokens], ascending

    @property
    def characters(self) -> np.ndarray:
        """int64 [tokens]: the character in which each token begins."""
        return self.places >> _SHIFT

    def tokens_at(self, characters: np.ndarray | Sequence[int]) -> np.ndarray:
        """int64: for each character the token that holds its first byte; the token in front, for a character that became none
        (bytes that a vocabulary lacks, spaces that a special token took)."""
        wanted = np.asarray(characters, np.int64) << _SHIFT
        found: np.ndarray = np.maximum(np.searchsorted(self.places, wanted, side="right") - 1, 0)
        return found

    def part(self, begin: int, end: int) -> LocatedIds:
        """Tokens begin .. end - 1; places count from the character in which the first of them begins."""
        places = self.places[begin:end]
        return LocatedIds(self.ids[begin:end], places - (places[:1] >> _SHIFT << _SHIFT))

    def followed_by(self, other: LocatedIds, characters: int) -> LocatedIds:
        """These tokens, of a text of so many characters, and those of a text behind it."""
        return LocatedIds(self.ids + other.ids, np.concatenate((self.places, other.places + (characters << _SHIFT))))

    def framed(self, ids: list[int]) -> LocatedIds:
        """The same as `ids`, which differ by the BOS in front: there is one more, or there are fewer."""
        more = len(ids) - len(self.ids)
        assert more <= 1, "a BOS stands in front once"
        places = self.places[-more:] if more <= 0 else np.concatenate((np.zeros(1, np.int64), self.places))
        return LocatedIds(ids, places)


class Located:
    """Collects tokens section by section."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._places: list[int] = []
        self._begin = self._done = 0
        self._map: Sequence[int] | None = None

    def enter(self, begin: int, text: str, normalised: str, prefix: str) -> None:
        """What follows is of `text`, which begins at that character, as `normalised`, with `prefix` in front of it."""
        self._begin, self._done = begin, -len(prefix)
        self._map = None if text == normalised else _places_of(text, normalised)

    def add(self, token_id: int, character: int, byte: int) -> None:
        self._ids.append(token_id)
        self._places.append(character << _SHIFT | byte)

    def extend(self, tokens: Sequence[tuple[int, int, int]], length: int) -> None:
        """Tokens of the next `length` characters: id, character, byte of it."""
        for token_id, character, byte in tokens:
            place = self._done + character
            if place < 0:  # the space in front, which the text does not have
                self.add(token_id, self._begin, 0)
            elif self._map is None:
                self.add(token_id, self._begin + place, byte)
            else:
                origin = self._map[place]
                self.add(token_id, self._begin + (origin >> _SHIFT), min((origin & _MASK) + byte, _MASK))
        self._done += length

    def finish(self) -> LocatedIds:
        return LocatedIds(
            self._ids, np.maximum.accumulate(np.array(self._places, np.int64)) if self._ids else np.zeros(0, np.int64)
        )


def _places_of(text: str, normalised: str) -> Sequence[int]:
    """For each character of `normalised` the place in `text` that it came from.

    NFC text and what it came from decompose into equally many code points in the same order, but for marks that change their
    order inside of one character (Unicode 15, section 3.11): so the code points of the decomposition are counted on both sides.
    """
    origin_ends = np.cumsum([len(unicodedata.normalize("NFD", char)) for char in text])
    lengths = np.array([len(unicodedata.normalize("NFD", char)) for char in normalised], np.int64)
    begins = np.cumsum(lengths) - lengths
    if origin_ends[-1] != begins[-1] + lengths[-1]:
        return _common_ends(text, normalised)
    origins = np.searchsorted(origin_ends, begins, side="right")
    places, last, byte = [], -1, 0
    for origin, char in zip(origins.tolist(), normalised, strict=True):
        byte = byte if origin == last else 0
        places.append(origin << _SHIFT | min(byte, _MASK))
        byte += len(char.encode("utf-8"))
        last = origin
    return places


def _common_ends(text: str, normalised: str) -> Sequence[int]:
    """Characters of a Unicode version that Python does not know yet: what both texts begin and end with is the same, and all in
    between is where the difference begins."""
    same = next((i for i, (a, b) in enumerate(zip(text, normalised, strict=False)) if a != b), min(len(text), len(normalised)))
    most = min(len(text), len(normalised)) - same
    tail = next((i for i in range(most) if text[-1 - i] != normalised[-1 - i]), most)
    middle = len(normalised) - same - tail
    places = [*range(same), *[same] * middle, *range(len(text) - tail, len(text))]
    return [place << _SHIFT for place in places]
