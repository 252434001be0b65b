"""Extents between reservation and use. Owns: Lease. Needs: a pool. Never: offsets of its own.

Leaving early gives everything back, so that a step that is not run changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

from edge.pages.geometry import ExtentKind

if TYPE_CHECKING:
    from edge.pages.pool import Pool


@dataclass(slots=True)
class Lease:
    """Extents that were reserved and belong to nobody yet. Leaving the `with` block gives back what is not committed."""

    _pool: Pool
    _waiting: dict[ExtentKind, list[int]]  # not taken yet
    _taken: list[int] = field(default_factory=list)
    _open: bool = True

    def take(self, kind: ExtentKind) -> int:
        """Offset of one of the reserved extents of this kind."""
        assert self._open and self._waiting.get(kind), f"no {kind} left in this lease"
        offset = self._waiting[kind].pop()
        self._taken.append(offset)
        return offset

    def commit(self) -> None:
        """The taken extents stay with whoever took them; what was reserved beyond that goes back."""
        assert self._open
        self._taken.clear()
        self._close()

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._open:
            self._close()

    def _close(self) -> None:
        self._open = False
        for offset in self._taken:
            self._pool.release(offset)
        for offsets in self._waiting.values():
            for offset in offsets:
                self._pool.release(offset)
        self._waiting.clear()
