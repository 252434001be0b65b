"""Special tokens in raw text. Owns: where they are. Needs: TokenTables. Never: what lies between them."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cached_property

from edge.text.tables import STRUCTURAL, TokenTables

# Unicode's White_Space; Python's own notion adds U+001C to U+001F.
WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
_WHITE_RUN = re.compile(f"[{WHITE_SPACE}]*")


class SpecialMatcher:
    """Cuts text at special tokens: the leftmost first, the longest of those that start there.

    With `structural` control and unknown tokens count, without only those that a model defines for ordinary text (runs of
    spaces, HTML tags). Tokens in `strip_left` and `strip_right` take the whitespace beside them with them.
    """

    def __init__(
        self, tables: TokenTables, *, structural: bool, strip_left: Collection[int] = (), strip_right: Collection[int] = ()
    ) -> None:
        self._tables, self._structural = tables, structural
        self._strip_left, self._strip_right = frozenset(strip_left), frozenset(strip_right)

    def split(self, text: str) -> list[str | int]:
        """`text` in order: what stands between special tokens, and their ids. No part is empty."""
        return [part for part, _ in self.locate(text)]

    def locate(self, text: str) -> list[tuple[str | int, int]]:
        """`split`, each part with the character of `text` at which it begins."""
        ids, lengths = self._ids, self._lengths
        if not ids:
            return [(text, 0)] if text else []
        parts: list[tuple[str | int, int]] = []
        done = 0
        for match in self._starts.finditer(text):
            start = match.start()
            if start < done:
                continue
            for length in lengths[text[start]]:
                token_id = ids.get(text[start : start + length])
                if token_id is not None:
                    before = text[done:start]
                    if token_id in self._strip_left:
                        before = before.rstrip(WHITE_SPACE)
                    parts.extend(((before, done), (token_id, start)) if before else ((token_id, start),))
                    done = start + length
                    if token_id in self._strip_right:
                        done = _white_end(text, done)
                    break
        if done < len(text):
            parts.append((text[done:], done))
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


def _white_end(text: str, begin: int) -> int:
    """Where the whitespace from `begin` on ends."""
    run = _WHITE_RUN.match(text, begin)
    assert run is not None, "it matches nothing too"
    return run.end()
