"""Text to token ids and back. Owns: the order of splitting, matching and merging. Needs: tables.bin, tokenizer_config.json.
Never: templates, engines.

User text never becomes a control token: without `specials` the text of one is split like any other text, and no merge ends
in one. The ids are those of the model's own tokenizer.json in the `tokenizers` library (`specials` being the contrary of its
encode_special_tokens), and for GGUF files those of llama.cpp (its parse_special), but that Qwen's text is brought to NFC first,
as its own tokenizer.json does it and llama.cpp does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from edge.errors import PackageError, RequestError
from edge.text.decoder import TextDecoder, decode_bytes
from edge.text.normalise import check_text
from edge.text.pieces import SPACE, BytePieces, CharacterPieces, Pieces
from edge.text.rendered import RenderedChat
from edge.text.specials import SpecialMatcher
from edge.text.tables import BUILD_AGAIN, STRUCTURAL, TokenTables, forget_pages, open_tables
from edge.text.tokenizer_config import FILE_NAME as CONFIG_NAME
from edge.text.tokenizer_config import SpacePrefix, TokenizerConfig, read_config

if TYPE_CHECKING:
    from edge.text.located import LocatedIds

TABLES_NAME = "tables.bin"
CACHED_PIECES, CACHED_LENGTH = 16384, 64  # words whose ids are remembered; a long-running server's memory stays bounded


class Tokenizer:
    """One vocabulary. Safe to share between threads: what it holds is read-only, but for a cache of whole entries."""

    def __init__(self, tables: TokenTables, config: TokenizerConfig) -> None:
        self._tables = tables
        self.config = config
        strips = {"strip_left": config.strip_left, "strip_right": config.strip_right}
        self._plain = SpecialMatcher(tables, structural=False, **strips)
        self._special = SpecialMatcher(tables, structural=True, **strips)
        self._cache: dict[str, tuple[int, ...]] = {}
        self._located_cache: dict[str, list[tuple[int, int, int]]] = {}
        self._pieces: Pieces
        if config.symbols == "bytes":
            self._pieces = BytePieces(tables, config.split, config.whole_pieces)
        else:
            self._pieces = CharacterPieces(tables, config.space_follows)

    @classmethod
    def open(cls, folder: Path) -> Tokenizer:
        """Opens a package's tokenizer folder. PackageError where a file is missing or damaged, or the two are not of one
        vocabulary."""
        from edge.text.table_check import check_tables

        tables, config = open_tables(folder / TABLES_NAME), read_config(folder)
        if tables.token_count != config.vocab_size:
            fact = f"{TABLES_NAME} has {tables.token_count:,} tokens, {CONFIG_NAME} says {config.vocab_size:,}"
            raise PackageError(f"{folder}: {fact}. {BUILD_AGAIN}")
        try:
            check_tables(tables, config.symbols)
        except ValueError as error:
            raise PackageError(f"{folder / TABLES_NAME}: {error}. {BUILD_AGAIN}") from error
        forget_pages(tables)
        return cls(tables, config)

    @property
    def vocab_size(self) -> int:
        return self._tables.token_count

    @property
    def eos_ids(self) -> frozenset[int]:
        """Tokens that end an answer."""
        return frozenset(self.config.eos_token_ids)

    def control_texts(self) -> tuple[str, ...]:
        """What the control tokens look like in text."""
        tables = self._tables
        return tuple(decode_bytes(tables.token_text(i)) for i in tables.specials if tables.kinds[i] in STRUCTURAL)

    def token_text(self, token_id: int) -> str:
        """One token as text, control tokens too."""
        return decode_bytes(self.token_bytes(token_id, specials=True))

    def encode(self, text: str, *, specials: bool) -> list[int]:
        """Token ids of `text`, no BOS or EOS added. With `specials` the text of a control token becomes that token."""
        check_text(text, "text")
        matcher = self._special if specials else self._plain
        return self._encode(matcher.split(text))

    def encode_chat(self, chat: RenderedChat, start: int = 0) -> list[int]:
        """Token ids of a rendered chat: control tokens only where the template wrote them, BOS at most once.

        The text between two control tokens is tokenised as one, as models have seen it in training. With `start`, only what
        follows that many characters: what is to be appended to ids that end there.
        """
        fragments: list[str | int] = []
        for part in self._special.split(chat.marked[start:]):
            fragments.extend([part] if isinstance(part, int) else self._plain.split(chat.restore(part)))
        if start:
            return self._encode(fragments, follows_special=False)
        return self.frame(self._encode(fragments))

    def _encode(self, fragments: Iterable[str | int], follows_special: bool = True) -> list[int]:
        """Token ids of text that has been cut at its special tokens. Not `follows_special`: it goes on with other text."""
        ids: list[int] = []
        starts = follows_special  # whether nothing stands in front
        for fragment in fragments:
            if isinstance(fragment, int):
                ids.append(fragment)
            else:
                text = self._normalised(fragment)
                if _wants_space(self.config.space_prefix, text, starts, follows_special):
                    text = " " + text
                for piece in self._pieces.split(text):
                    ids.extend(self._piece_ids(piece))
            starts, follows_special = False, isinstance(fragment, int)
        return ids

    def encode_located(self, text: str, *, specials: bool) -> LocatedIds:
        """`encode`, and where in `text` each token begins; the ids are the same."""
        check_text(text, "text")
        return self._encode_located((self._special if specials else self._plain).locate(text))

    def encode_prompt_located(self, text: str) -> LocatedIds:
        """`encode_prompt`, and where in `text` each token begins; BOS begins where the text does."""
        located = self.encode_located(text, specials=False)
        return located.framed(self.frame(located.ids))

    def encode_chat_located(self, chat: RenderedChat) -> LocatedIds:
        """`encode_chat` from the start, and where in `chat.text` each token begins."""
        fragments: list[tuple[str | int, int]] = []
        for part, begin in self._special.locate(chat.marked):
            if isinstance(part, int):
                fragments.append((part, begin))
            else:  # a mark stands for one character, so that both texts are equally long
                fragments.extend((inner, begin + place) for inner, place in self._plain.locate(chat.restore(part)))
        located = self._encode_located(fragments)
        return located.framed(self.frame(located.ids))

    def _encode_located(self, fragments: Iterable[tuple[str | int, int]]) -> LocatedIds:
        """`_encode` of fragments with the characters at which they begin."""
        from edge.text.located import Located

        located = Located()
        starts = follows_special = True
        for fragment, begin in fragments:
            if isinstance(fragment, int):
                located.add(fragment, begin, 0)
            else:
                normalised = self._normalised(fragment)
                prefix = " " if _wants_space(self.config.space_prefix, normalised, starts, follows_special) else ""
                located.enter(begin, fragment, normalised, prefix)
                for piece in self._pieces.split(prefix + normalised):
                    located.extend(self._piece_located(piece), len(piece))
            starts, follows_special = False, isinstance(fragment, int)
        return located.finish()

    def _normalised(self, text: str) -> str:
        if not self.config.nfc or text.isascii():
            return text
        from tokenizers import normalizers  # of its Unicode version, not Python's: models' own tokenizers use it

        return normalizers.NFC().normalize_str(text)

    def check_length(self, text_bytes: int, max_context: int) -> None:
        """RequestError where text of so many bytes of UTF-8 must have more than `max_context` tokens, whatever it says.

        Tokenising some megabytes to find that out takes seconds and a hundred times their memory.
        """
        if text_bytes <= max_context:  # a token has at least one byte
            return
        least = -(-text_bytes // self._longest_token)
        if least > max_context:
            raise RequestError(
                f"the text has {text_bytes:,} bytes, at least {least:,} tokens, the context {max_context:,}. Shorten it"
            )

    @cached_property
    def _longest_token(self) -> int:
        """Bytes of the longest token."""
        import numpy as np

        ends = np.asarray(self._tables.text_ends, np.int64)
        return int(np.diff(ends, prepend=0).max())

    def encode_prompt(self, text: str) -> list[int]:
        """A plain prompt as the model expects it: BOS once in front where the model wants one, the text literal."""
        return self.frame(self.encode(text, specials=False))

    def frame(self, ids: Sequence[int]) -> list[int]:
        """`ids` with exactly one BOS in front, where the model wants one; a template may have written it already."""
        bos = self.config.bos_token_id
        if not self.config.add_bos or bos is None:
            return list(ids)
        start = 0
        while start < len(ids) and ids[start] == bos:
            start += 1
        return [bos, *ids[start:]]

    def decode(self, ids: Iterable[int], *, specials: bool = False) -> str:
        """The text of `ids`. Control tokens are left out, or written as their text with `specials`."""
        return decode_bytes(b"".join(self.token_bytes(token_id, specials=specials) for token_id in ids))

    def stream(self, *, specials: bool = False) -> TokenStream:
        """A decoder for ids as they come."""
        return TokenStream(self, specials)

    def token_bytes(self, token_id: int, *, specials: bool) -> bytes:
        """The bytes of one token, none for a control token without `specials`. RequestError outside the vocabulary."""
        if not 0 <= token_id < self._tables.token_count:
            last = self._tables.token_count - 1
            raise RequestError(f"token id {token_id} is outside the vocabulary. Give ids from 0 to {last:,}")
        if not specials and self._tables.kinds[token_id] in STRUCTURAL:
            return b""
        return self._tables.token_text(token_id)

    def _piece_ids(self, piece: str) -> tuple[int, ...]:
        ids = self._cache.get(piece)
        if ids is None:
            ids = tuple(self._pieces.ids(piece))
            if len(piece) <= CACHED_LENGTH:
                if len(self._cache) >= CACHED_PIECES:
                    self._cache.clear()
                self._cache[piece] = ids
        return ids

    def _piece_located(self, piece: str) -> list[tuple[int, int, int]]:
        found = self._located_cache.get(piece)
        if found is None:
            found = self._pieces.located(piece)
            if len(piece) <= CACHED_LENGTH:
                if len(self._located_cache) >= CACHED_PIECES:
                    self._located_cache.clear()
                self._located_cache[piece] = found
        return found


def _wants_space(prefix: SpacePrefix, text: str, starts: bool, follows_special: bool) -> bool:
    """Whether a space goes in front of `text`."""
    if prefix == "none":
        return False
    if prefix == "sections":
        return follows_special
    return (starts if prefix == "start_unless_space" else follows_special) and text[0] not in (" ", SPACE)


class TokenStream:
    """Ids to text, one at a time: joined, the results equal `decode` of all ids. For one thread at a time."""

    def __init__(self, tokenizer: Tokenizer, specials: bool) -> None:
        self._tokenizer, self._specials = tokenizer, specials
        self._decoder = TextDecoder()

    def push(self, token_id: int) -> str:
        """The characters that this token completes; "" while one is incomplete."""
        return self._decoder.push(self._tokenizer.token_bytes(token_id, specials=self._specials))

    def finish(self) -> str:
        """What is left of an incomplete character, as U+FFFD."""
        return self._decoder.finish()
