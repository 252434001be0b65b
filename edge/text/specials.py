"""Special tokens in raw text. Owns: where they are. Needs: TokenTables. Never: what lies between them."""

from __future__ import annotations

import re
from functools import cached_property

from edge.text.tables import STRUCTURAL, TokenTables


class SpecialMatcher:
    """Cuts text at special tokens: the leftmost first, the longest of those that start there.

    With `structural` control and unknown tokens count, without only those that a model defines for ordinary text (runs of
    spaces, HTML tags).
    """

    def __init__(self, tables: TokenTables, *, structural: bool) -> None:
        self._tables, self._structural = tables, structural

    def split(self, text: str) -> list[str | int]:
        """`text` in order: what stands between special tokens, and their ids. No part is empty."""
        ids, lengths = self._ids, self._lengths
        if not ids:
            return [text] if text else []
        parts: list[str | int] = []
        done = 0
        for match in self._starts.finditer(text):
            start = match.start()
            if start < done:
                continue
            for length in lengths[text[start]]:
                token_id = ids.get(text[start : start + length])
                if token_id is not None:
                    if start > done:
                        parts.append(text[done:start])
                    parts.append(token_id)
                    done = start + length
                    break
        if done < len(text):
            parts.append(text[done:])
        return parts

    # Two threads may build these at once; they build the same.
    @cached_property
    def _ids(self) -> dict[str, int]:
        tables = self._tables
        wanted = (i for i in tables.specials if self._structural or tables.kinds[i] not in STRUCTURAL)
        return {tables.token_text(i).decode("utf-8"): i for i in wanted}

    @cached_property
    def _lengths(self) -> dict[str, list[int]]:
        """First character -> lengths of the tokens that begin with it, longest first."""
        found: dict[str, set[int]] = {}
        for token in self._ids:
            found.setdefault(token[0], set()).add(len(token))
        return {first: sorted(sizes, reverse=True) for first, sizes in found.items()}

    @cached_property
    def _starts(self) -> re.Pattern[str]:
        """Where a token can start, by its first two characters: most `<` and most spaces start none."""
        pairs: dict[str, set[str]] = {}
        for token in self._ids:
            pairs.setdefault(token[0], set()).add(token[1:2])
        branches = []
        for first, seconds in sorted(pairs.items()):
            follow = "" if "" in seconds else f"[{''.join(re.escape(char) for char in sorted(seconds))}]"
            branches.append(re.escape(first) + follow)
        return re.compile(f"(?={'|'.join(branches)})")
