"""A conversation whose pages stay between its requests. Owns: Session. Needs: a runtime. Never: text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edge.events import Events
from edge.interrupts import deferred_interrupts
from edge.pages.account import ZoneBytes
from edge.request import Request, SequenceTokens
from edge.sampling import SamplingParams

if TYPE_CHECKING:
    import numpy as np

    from edge.runtime import Runtime


class Session:
    """One sequence at a time. Each request gives the whole conversation as tokens; what was computed for the same tokens at
    the front is used again. When the pool is full, pages of idle sessions are the first to go; they are computed anew then."""

    def __init__(self, runtime: Runtime, sequence: SequenceTokens) -> None:
        self._runtime = runtime
        self._sequence = sequence

    @property
    def computed_tokens(self) -> int:
        """Tokens whose pages stand, so that a request that begins with them need not compute them."""
        return self._sequence.pages.length

    @property
    def words(self) -> np.ndarray:
        """Page-table words int32 [groups, max_pages, 2] of these pages; a view, not to be written to."""
        return self._sequence.pages.words()

    def submit(
        self,
        prompt_ids: Sequence[int],
        sampling: SamplingParams,
        max_tokens: int,
        stop_ids: frozenset[int] = frozenset(),
        cuts: Sequence[int] = (),
        zones: bytes = b"",
    ) -> Request:
        """As Runtime.submit; RequestError too while the request before has not ended."""
        return self._runtime.submit_to(self._sequence, prompt_ids, sampling, max_tokens, stop_ids, cuts, zones)

    def generate(
        self,
        prompt_ids: Sequence[int],
        sampling: SamplingParams,
        max_tokens: int,
        stop_ids: frozenset[int] = frozenset(),
        cuts: Sequence[int] = (),
        zones: bytes = b"",
    ) -> Events:
        """As Runtime.generate."""
        with deferred_interrupts():
            return self._runtime.events(self.submit(prompt_ids, sampling, max_tokens, stop_ids, cuts, zones))

    def kv_bytes(self) -> ZoneBytes:
        """What its pages take."""
        return self._sequence.pages.bytes_by_zone()

    def close(self) -> None:
        """Frees the pages; a request that has not ended is cancelled."""
        self._runtime.forget(self._sequence)
