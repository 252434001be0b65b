"""The events of one request, for who waits for them. Owns: Events. Needs: request. Never: an engine, other requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType

from edge.request import Request, TokenEvent


class Events(Iterator[TokenEvent]):
    """Events of one request as they come, until it ends; steps that it waits for serve other requests too.

    Closing it cancels the request, whether or not an event was ever asked for; so does leaving its `with` block, and so does
    dropping it, as with a generator: a loop that is left keeps no name for it, and Ctrl-C can strike before there is one.
    """

    def __init__(
        self, request: Request, inbox: deque[TokenEvent], step: Callable[[], object], leave: Callable[[int], None]
    ) -> None:
        """`step` fills `inbox`, sooner or later; `leave` cancels the request of this number and fills it no more."""
        self._request, self._inbox = request, inbox
        self._step, self._leave = step, leave

    def __next__(self) -> TokenEvent:
        """The next event. Raises what the engine reports; the request has ended then."""
        try:
            while not self._inbox:
                if self._request.finish_reason is not None:
                    raise StopIteration
                self._step()
        except BaseException:
            self.close()
            raise
        event = self._inbox.popleft()
        if event.finish_reason is not None:
            self.close()
        if event.error is not None:
            raise event.error
        return event

    @property
    def reused_tokens(self) -> int:
        """Of the prompt, those that are not computed for it; certain when the first event has come."""
        return self._request.reused_tokens

    def close(self) -> None:
        """Ends the request where it has not ended. A second time changes nothing."""
        self._leave(self._request.id)
        self._inbox.clear()

    def __enter__(self) -> Events:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
