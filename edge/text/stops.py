"""Stop strings. Owns: text that may still become one. Needs: nothing. Never: token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from edge.errors import RequestError


class Emission(NamedTuple):
    """What became certain."""

    text: str  # may be shown
    stopped: bool  # a stop string is complete; nothing more will be emitted


class StopMatcher:
    """Cuts streamed text in front of the first stop string to be complete; of those complete at once the longest counts.

    The result depends on the text alone, not on how it was cut into pieces: an answer stops at the character that
    completes a stop string, as it would if tokens were characters.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if "" in stops:
            raise RequestError("a stop string is empty. Leave it out, or give it at least one character")
        self._stops = tuple(stops)
        self._held = ""  # the longest end of the text so far that begins a stop string
        self._stopped = False

    def push(self, text: str) -> Emission:
        """Adds text; what may begin a stop string is held back."""
        if self._stopped:
            return Emission("", True)
        text = self._held + text
        # A match ends in the new text, but may begin in the held part.
        matches = [(place + len(stop), place) for stop in self._stops if (place := text.find(stop)) >= 0]
        if matches:
            self._held, self._stopped = "", True
            return Emission(text[: min(matches)[1]], True)
        keep = max((self._begun(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return Emission(text[: len(text) - keep], False)

    def finish(self) -> str:
        """The held text, once the answer is over: it became no stop string."""
        rest, self._held = self._held, ""
        return rest

    @staticmethod
    def _begun(text: str, stop: str) -> int:
        """Characters of `stop` that `text` ends with, short of all of it."""
        for size in range(min(len(stop) - 1, len(text)), 0, -1):
            if text.endswith(stop[:size]):
                return size
        return 0
