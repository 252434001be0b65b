"""Pages of text that was computed before, for requests that begin with the same tokens. Owns: cut points, their order of going.
Needs: pool, geometry. Never: tensors, copies, requests.

A cut is a state that a sequence was in at a page border. A sequence that adopts it goes on as the first one did there, so a
hit equals a miss to the bit. Pages are held by reference, and ids are compared, not hashes of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field

import numpy as np

from edge.contract import EMPTY, PAGE_TOKENS, word_offset
from edge.pages.geometry import GroupPages, first_page, sealed_end
from edge.pages.pool import Pool

NOTHING_WANTED: Set[int] = frozenset()
_KEY_BYTES = PAGE_TOKENS * 4  # of the int32 ids of a page


@dataclass(frozen=True, eq=False, slots=True)
class Cut:
    """A sequence between two steps, `length` tokens being computed: what a query there or later reads of them."""

    length: int  # a multiple of PAGE_TOKENS, above 0
    words: np.ndarray  # int32 [groups, length / PAGE_TOKENS, 2] (K, V) page-table words; EMPTY behind a window
    sealed: int  # pages before this one are sealed, but for page 0

    def __post_init__(self) -> None:
        assert self.length > 0 and self.length % PAGE_TOKENS == 0 and self.words.shape[1] * PAGE_TOKENS == self.length

    def offsets(self) -> list[int]:
        """Of the extents, each once."""
        return [word_offset(word) for word in self.words[self.words != EMPTY].tolist()]


def cut_border(position: int) -> int:
    """Where the cut for this position lies: at the page border there or before. It is in the same block between two seal
    borders, so a query there reads the same forms. 0: there is none."""
    return position // PAGE_TOKENS * PAGE_TOKENS


def cut_of(groups: Sequence[GroupPages], words: np.ndarray, length: int, sealed: int) -> Cut | None:
    """The cut at `length` of a sequence whose table is `words` int32 [groups, max_pages, 2] and whose pages before `sealed` are
    sealed. None where a page that a query there reads is gone, or is sealed and would be read in fp16: computing it again from
    sealed pages would not give the same values."""
    end = length // PAGE_TOKENS
    kept = words[:, :end].copy()
    for group, pages in enumerate(groups):
        first = first_page(pages.window, length)
        if (kept[group, first:] == EMPTY).any() or max(first, sealed_end(length), 1) < min(sealed, end):
            return None
        kept[group, :first] = EMPTY
    return Cut(length, kept, min(sealed, sealed_end(length)))


@dataclass(eq=False, slots=True)
class _Node:
    """A page of ids behind those of its parents."""

    parent: _Node | None
    key: bytes  # its ids, int32
    children: dict[bytes, _Node] = field(default_factory=dict)
    cut: Cut | None = None
    is_pinned: bool = False


class PrefixCache:
    """Cuts by the ids in front of them. It holds each extent of a cut by one reference, and lets cuts go one by one, the least
    recently used first, a longer one before those that it goes on from."""

    def __init__(self, pool: Pool, is_on: bool = True) -> None:
        """Where it is not `is_on`, nothing is published; what is pinned is found all the same."""
        self.hits = 0  # sequences that began with a cut
        self.hit_tokens = 0
        self.is_on = is_on
        self._pool = pool
        self._root = _Node(None, b"")
        self._order: dict[_Node, None] = {}  # with a cut that may go: the first goes first

    def __len__(self) -> int:
        """Cuts, those that are pinned apart."""
        return len(self._order)

    def publish(self, ids: Sequence[int], cut: Cut | None) -> None:
        """Keeps a cut that begins with `ids`, at least cut.length of them; its extents are in use. Nothing for None."""
        if cut is None or not self.is_on:
            return
        *_, node = self._grow(ids, cut.length)
        if node.cut is None:
            self._pool.keep(cut.offsets())
            node.cut = cut
        self._touch(node)

    def pin(self, ids: Sequence[int], cuts: Iterable[Cut]) -> None:
        """Cuts that never go, of pages that stand outside of the pool; each begins with `ids`."""
        for cut in cuts:
            *_, node = self._grow(ids, cut.length)
            if node in self._order:
                self._drop(node)
                *_, node = self._grow(ids, cut.length)
            node.cut, node.is_pinned = cut, True

    def find(self, ids: Sequence[int], most: int) -> Cut | None:
        """The longest cut of at most `most` tokens with which `ids` begin. That somebody asks is not yet use."""
        node = self._find(ids, most)
        return None if node is None else node.cut

    def find_pinned(self, ids: Sequence[int], most: int) -> Cut | None:
        """The same of those that are pinned: a sequence that begins with it holds nothing of the pool."""
        node, found = self._root, None
        for key in _keys(ids, min(most, len(ids))):
            if (child := node.children.get(key)) is None:
                break
            node = child
            found = node.cut if node.is_pinned else found
        return found

    def use(self, ids: Sequence[int], cut: Cut) -> None:
        """A sequence begins with a cut that `find` gave for these ids."""
        node = self._find(ids, cut.length)
        assert node is not None and node.cut is cut
        self._touch(node)
        self.hits += 1
        self.hit_tokens += cut.length

    def evict(self, wanted: Set[int] = NOTHING_WANTED) -> bool:
        """Lets one cut go: the first in order of those that hold an extent which only cuts hold (another cut may hold it as
        well, and goes when it is asked for more), else the first that holds one of `wanted`. False where there is none."""
        for helps in (self._pool.is_cached, wanted.__contains__):
            for node in self._order:
                assert node.cut is not None
                if any(map(helps, node.cut.offsets())):
                    self._drop(node)
                    return True
        return False

    def clear(self) -> None:
        """Lets all cuts go that are not pinned."""
        for node in list(self._order):
            self._drop(node)

    def extents(self) -> Counter[int]:
        """Offsets that cuts hold, each with the number of times; those of pinned ones are not the pool's."""
        held: Counter[int] = Counter()
        for node in self._order:
            assert node.cut is not None
            held.update(node.cut.offsets())
        return held

    def _find(self, ids: Sequence[int], most: int) -> _Node | None:
        node, found = self._root, None
        for key in _keys(ids, min(most, len(ids))):
            if (child := node.children.get(key)) is None:
                break
            node = child
            found = node if node.cut is not None else found
        return found

    def _grow(self, ids: Sequence[int], length: int) -> Iterator[_Node]:
        """The nodes of the pages of ids[:length], in order; those that are not there are made."""
        node = self._root
        for key in _keys(ids, length):
            child = node.children.get(key)
            if child is None:
                child = node.children[key] = _Node(node, key)
            node = child
            yield node

    def _touch(self, node: _Node) -> None:
        """This cut and those that it goes on from are the last to go, the shortest at the very end."""
        at: _Node | None = node
        while at is not None:
            if at.cut is not None and not at.is_pinned:
                self._order.pop(at, None)
                self._order[at] = None
            at = at.parent

    def _drop(self, node: _Node) -> None:
        assert node.cut is not None and not node.is_pinned
        del self._order[node]
        self._pool.let_go(node.cut.offsets())
        node.cut = None
        while node.parent is not None and node.cut is None and not node.children:
            del node.parent.children[node.key]
            node = node.parent


def _keys(ids: Sequence[int], length: int) -> Iterator[bytes]:
    """The ids of each whole page of ids[:length]."""
    pages = length // PAGE_TOKENS
    data = np.array(ids[: pages * PAGE_TOKENS], np.int32).tobytes()
    return (data[start : start + _KEY_BYTES] for start in range(0, len(data), _KEY_BYTES))
