"""Prefixes whose files are mapped behind a pool. Owns: where their extents are in it, whether the files are the same still.
Needs: prefix, pool, prefix cache. Never: maps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edge.baked.prefix import BakedPrefix, rest_formats
from edge.contract import EMPTY, OFFSET_UNIT, word_offset
from edge.pages.geometry import page_groups, sealed_end
from edge.pages.pool import Pool
from edge.pages.prefix_cache import Cut, PrefixCache
from edge.presets import PRESETS
from edge.spec import ModelSpec


class MappedPrefixes:
    """Those of one runtime. Each of their cuts is pinned: found like what was published, and never let go."""

    def __init__(self, prefixes: Sequence[BakedPrefix] = (), file_offsets: Sequence[int] = ()) -> None:
        """`file_offsets`: where in the memory of the pool each file begins."""
        self._prefixes, self._offsets = tuple(prefixes), tuple(file_offsets)

    def pin(self, spec: ModelSpec, pool: Pool, cache: PrefixCache) -> None:
        """PackageError where a prefix is none of this model, BudgetError where no page-table word reaches it."""
        for prefix, offset in zip(self._prefixes, self._offsets, strict=True):
            preset = prefix.header.engine.preset
            groups = page_groups(spec, PRESETS[preset])
            begin = offset + prefix.header.begin
            cuts = []
            for length, words in prefix.cuts(spec):
                for group, of_group in zip(groups, words, strict=True):
                    for page, *kinds in rest_formats(group, length):
                        for word, kind in zip(of_group[page].tolist(), kinds, strict=True):
                            if kind is not None:
                                pool.pin(begin + word_offset(word), kind)
                placed = np.where(words == EMPTY, EMPTY, words + begin // OFFSET_UNIT).astype(np.int32)
                cuts.append(Cut(length, placed, sealed_end(length - 1) if PRESETS[preset].seals else 0))
            cache.pin(prefix.token_ids, cuts)

    @property
    def least_tokens(self) -> int:
        """Tokens of the shortest; 0 where there is none."""
        return min((prefix.header.tokens for prefix in self._prefixes), default=0)

    def check_unchanged(self) -> None:
        """PackageError where a file was replaced, removed or cut short since it was opened."""
        for prefix in self._prefixes:
            prefix.check_unchanged()

    def check_read(self, token_ids: Sequence[int]) -> None:
        """PackageError where these tokens, which were computed, begin with pages of a file, and one was cut short or written
        to: what was cut off reads as zeros up to the end of the system's page."""
        if self.shared_tokens(token_ids):
            for prefix in self._prefixes:
                prefix.check_uncut()

    def shared_tokens(self, token_ids: Sequence[int]) -> int:
        """Tokens at the front of this prompt, less its last one, whose pages are in a file."""
        most = len(token_ids) - 1
        lengths = (
            cut.tokens
            for prefix in self._prefixes
            for cut in prefix.header.cuts
            if cut.tokens <= most and prefix.token_ids[: cut.tokens] == list(token_ids[: cut.tokens])
        )
        return max(lengths, default=0)
