"""Text in pieces that no token crosses. Owns: the cuts, and a piece's way to ids. Needs: TokenTables, `tokenizers` for the
regular expressions of byte-level models. Never: special tokens.

Cutting first lets a tokenizer remember the ids of words, and keeps merging short.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from edge.errors import PackageError, RequestError
from edge.text.merging import NO_SYMBOL, merge_symbols
from edge.text.tables import BUILD_AGAIN, TokenTables

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer

SPACE = "\u2581"  # stands for a space in SentencePiece vocabularies
BYTE_CODES = 0x110000  # code of byte b among the symbols of a SentencePiece vocabulary: behind every code point


class Pieces(Protocol):
    """How one kind of vocabulary treats text between special tokens."""

    def split(self, text: str) -> Sequence[str]:
        """`text` in pieces that can be tokenised one by one."""

    def ids(self, piece: str) -> list[int]:
        """Token ids of one piece."""

    def located(self, piece: str) -> list[tuple[int, int, int]]:
        """`ids`, each with the character of `piece` in which its text begins, and at which byte of that."""


class BytePieces:
    """Byte-level BPE (GPT-2): regular expressions cut words, merges start from their UTF-8 bytes."""

    def __init__(self, tables: TokenTables, split: tuple[str, ...], whole_pieces: bool) -> None:
        self._tables, self._split, self._whole_pieces = tables, split, whole_pieces

    def split(self, text: str) -> list[str]:
        try:
            return [piece for piece, _ in self._cutter.pre_tokenize_str(text)]
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # of the library's Rust code, no Exception, and it has no module
                raise
            raise RequestError(f"the expressions that cut words cannot cut this text ({error}). Give other text") from None

    def ids(self, piece: str) -> list[int]:
        return [token for token, _ in self._merged(piece.encode("utf-8"))[0]]

    def located(self, piece: str) -> list[tuple[int, int, int]]:
        data = piece.encode("utf-8")
        merged, places = self._merged(data)
        if len(data) == len(piece):
            return [(token, places[begin], 0) for token, begin in merged]
        owners = [(index, byte) for index, char in enumerate(piece) for byte in range(len(char.encode("utf-8")))]
        return [(token, *owners[places[begin]]) for token, begin in merged]

    def _merged(self, data: bytes) -> tuple[list[tuple[int, int]], Sequence[int]]:
        """Ids, each with the symbol at which it begins; and the bytes of the symbols."""
        if self._whole_pieces:
            whole = self._tables.piece(data)
            if whole is not None:
                return [(whole, 0)], (0,)
        symbols = [self._symbols[byte] for byte in data]
        places: Sequence[int] = range(len(data))
        if None in symbols:
            # A byte that the vocabulary lacks (SmolLM2 lacks 21) is dropped and its neighbours merge, as in the model's
            # tokenizer.
            places = [place for place, symbol in enumerate(symbols) if symbol is not None]
        known = [symbol for symbol in symbols if symbol is not None]
        return [(token, begin) for token, begin, _ in merge_symbols(self._tables, known)], places

    @cached_property
    def _symbols(self) -> tuple[int | None, ...]:
        """By byte."""
        return tuple(map(self._tables.symbol, range(256)))

    @cached_property
    def _cutter(self) -> PreTokenizer:
        from tokenizers import Regex, pre_tokenizers

        try:
            steps = [pre_tokenizers.Split(Regex(expression), "isolated") for expression in self._split]
        except Exception as error:  # the library raises no class of its own
            raise PackageError(f"tokenizer_config.json: split: {error}. {BUILD_AGAIN}") from error
        return steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)


class CharacterPieces:
    """SentencePiece BPE: merges start from code points; one that no token covers becomes the tokens of its bytes."""

    def __init__(self, tables: TokenTables, space_follows: str | None) -> None:
        self._tables = tables
        # Text can be cut in front of a space wherever no token holds "character, space": nearly everywhere.
        self._cut = None if space_follows is None else re.compile(f"(?<=[^{re.escape(SPACE + space_follows)}])(?={SPACE})")

    def split(self, text: str) -> list[str]:
        text = text.replace(" ", SPACE)
        return [text] if self._cut is None else self._cut.split(text)

    def ids(self, piece: str) -> list[int]:
        return [token for token, _, _ in self.located(piece)]

    def located(self, piece: str) -> list[tuple[int, int, int]]:
        tables = self._tables
        found = {char: tables.symbol(ord(char)) for char in set(piece)}
        symbols = [NO_SYMBOL if symbol is None else symbol for symbol in map(found.__getitem__, piece)]
        ids: list[tuple[int, int, int]] = []
        for token, begin, end in merge_symbols(tables, symbols):
            if 0 <= token < tables.token_count:
                ids.append((token, begin, 0))
            else:
                for place, char in enumerate(piece[begin:end], begin):
                    ids.extend((self._byte_id(data), place, byte) for byte, data in enumerate(char.encode("utf-8")))
        return ids

    def _byte_id(self, byte: int) -> int:
        token = self._tables.symbol(BYTE_CODES + byte)
        assert token is not None, "a SentencePiece vocabulary is written with all 256 byte tokens"
        return token
