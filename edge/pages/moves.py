"""How an extent goes from one form to another, and page-table words. Owns: PageMove, Demotion, Sealing. Needs: contract,
geometry. Never: which pages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from edge.contract import FORMAT_SHIFT, PAGE_FORMATS, page_word
from edge.pages.geometry import ExtentKind, PageKind
from edge.pages.lease import Lease


@dataclass(frozen=True, slots=True)
class PageMove:
    """Seal, demote or compact one extent, out of place."""

    group: int
    is_value: bool  # False: K
    source: int  # page-table word
    target: int  # page-table word
    bytes: int  # of the target

    @property
    def is_copy(self) -> bool:
        """Whether the extent keeps its format."""
        return self.source >> FORMAT_SHIFT == self.target >> FORMAT_SHIFT

    @property
    def seals(self) -> bool:
        """Whether an open extent gets its sealed form; the rest is demoted or copied."""
        return not self.is_copy and self.source >> FORMAT_SHIFT == PAGE_FORMATS["fp16"]


@dataclass(frozen=True, slots=True)
class Demotion:
    """A sealed page that goes to a level behind its own: to the next one, or further where page moves lead there."""

    group: int
    page: int
    level: int  # of GroupPages.levels


@dataclass(frozen=True, slots=True)
class Copy:
    """An extent that goes to another place as it is."""

    group: int
    page: int
    is_value: bool  # False: K


@dataclass(frozen=True, slots=True)
class Sealing:
    """What the next step of a sequence seals, whatever its length."""

    extents: Counter[ExtentKind]  # that it takes; never changed after it is made
    places: tuple[int, ...]  # of pages of each layer group that it may give to those that it adds: all that nobody else holds


_NO_MOVES = np.empty((0, 4), np.int32)


def kind_formats(kind: PageKind) -> tuple[int, int]:
    return PAGE_FORMATS[kind.key.page_format], PAGE_FORMATS[kind.value.page_format]


def word_formats(words: np.ndarray) -> tuple[int, int]:
    """Of the K and the V of a page, as numbers."""
    return int(words[0]) >> FORMAT_SHIFT, int(words[1]) >> FORMAT_SHIFT


def new_word(kind: ExtentKind, lease: Lease) -> int:
    return page_word(PAGE_FORMATS[kind.page_format], lease.take(kind))


def pack_moves(moves: tuple[PageMove, ...]) -> np.ndarray:
    """int32 [M, 4], as executors read them."""
    if not moves:
        return _NO_MOVES
    return np.array([(move.group, int(move.is_value), move.source, move.target) for move in moves], np.int32)
