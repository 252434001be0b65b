"""Whether the numbers in token tables point where they may. Owns: the rules. Needs: numpy. Never: files.

A package comes from anywhere, and who looks a token up trusts what the tables say: so they are checked once, all of them, when
they are opened (6 ms for 262,144 tokens). Wrong numbers that pass give wrong ids of the vocabulary, nothing worse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edge.text.pieces import BYTE_CODES
from edge.text.tables import BYTE, ID_MASK

if TYPE_CHECKING:
    from edge.text.tables import TokenTables

LONGEST_SPECIAL = 4096  # bytes of a token that is looked for in raw text; at each place that may begin one it is compared


def check_tables(tables: TokenTables, symbols: str) -> None:
    """ValueError, with the fact, where the tables are not those of a vocabulary whose symbols are `bytes` or `characters`."""
    count = tables.token_count
    if not count:
        raise ValueError("holds no tokens")
    ends = np.asarray(tables.text_ends)
    if (ends[1:] < ends[:-1]).any() or ends[-1] > len(tables.text):
        raise ValueError("the texts of its tokens do not lie one behind the other")
    if np.asarray(tables.kinds).max() > BYTE:
        raise ValueError("a token has an unknown kind")
    _check_merges(np.asarray(tables.merge_keys), np.asarray(tables.merge_values), count)
    _check_symbols(np.asarray(tables.symbol_codes), np.asarray(tables.symbol_ids), count, symbols)
    for name in ("pieces", "specials"):
        if np.asarray(getattr(tables, name)).max(initial=0) >= count:
            raise ValueError(f"{name} names a token that is not there")
    for token in tables.specials:
        text = tables.token_text(token)
        if not 0 < len(text) <= LONGEST_SPECIAL:
            raise ValueError(f"token {token}, looked for in text, has {len(text):,} bytes, not 1 to {LONGEST_SPECIAL:,}")
        try:
            text.decode("utf-8")
        except UnicodeDecodeError:
            raise ValueError(f"token {token}, looked for in text, is not UTF-8") from None


def _check_merges(keys: np.ndarray, values: np.ndarray, count: int) -> None:
    if (keys[1:] <= keys[:-1]).any():
        raise ValueError("its merges are not in order")
    if (values & ID_MASK).max(initial=0) >= count:
        raise ValueError("a merge makes a token that is not there")


def _check_symbols(codes: np.ndarray, ids: np.ndarray, count: int, symbols: str) -> None:
    if (codes[1:] <= codes[:-1]).any():
        raise ValueError("its symbols are not in order")
    # A character that only occurs inside of tokens has an id behind those of the tokens; a byte that is no token is left out.
    if ids.max(initial=0) >= count + (len(ids) if symbols == "characters" else 0):
        raise ValueError("a symbol names a token that is not there")
    if symbols == "characters":
        place = np.searchsorted(codes, BYTE_CODES)
        if len(codes) - place != 256 or codes[-1] != BYTE_CODES + 255 or ids[place:].max() >= count:
            raise ValueError("not every byte has a token")
