"""How a vocabulary is applied to text, in one small file. Owns: tokenizer_config.json, read and written. Needs: jsons.
Never: the vocabulary itself (tables.bin)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edge.errors import PackageError
from edge.jsons import JsonMismatch, read_json, write_json
from edge.text.tables import BUILD_AGAIN

FILE_NAME = "tokenizer_config.json"
Symbols = Literal["bytes", "characters"]  # what merges start from: byte-level BPE, or SentencePiece with byte fallback
# Where a space goes in front of text: nowhere; of every section, that is of text that starts a prompt or follows a special
# token; of those that do not begin with one; of a prompt's beginning that does not.
SpacePrefix = Literal["none", "sections", "sections_unless_space", "start_unless_space"]


@dataclass(frozen=True, slots=True)
class TokenizerConfig:
    """Written when a package is built, read by Tokenizer."""

    symbols: Symbols
    split: tuple[str, ...]  # byte-level: regular expressions (Oniguruma) that cut text into pieces, one after the other
    whole_pieces: bool  # byte-level: a piece that is a token is not merged up from bytes
    space_follows: str | None  # characters: those behind which a space may stand inside a token; None: nearly any, no cutting
    space_prefix: SpacePrefix  # characters
    nfc: bool  # text is brought to Unicode's NFC form, section by section, before it is cut
    strip_left: tuple[int, ...]  # special tokens that take the whitespace in front of them with them
    strip_right: tuple[int, ...]  # and those that take the whitespace behind them
    vocab_size: int
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]  # each of them ends an answer; the first is what templates call eos_token
    unk_token_id: int | None
    pad_token_id: int | None
    add_bos: bool  # there is no add_eos: behind a prompt it would end the answer before it begins
    chat_template: str | None  # read where there is no chat_template.jinja

    def __post_init__(self) -> None:
        named = (self.bos_token_id, self.unk_token_id, self.pad_token_id, *self.eos_token_ids)
        for token_id in named:
            if token_id is not None and not 0 <= token_id < self.vocab_size:
                raise ValueError(f"token id {token_id} is outside a vocabulary of {self.vocab_size:,}")


def read_config(folder: Path) -> TokenizerConfig:
    """The configuration in a package's tokenizer folder. PackageError where it is missing or not of this form."""
    path = folder / FILE_NAME
    try:
        return read_json(path.read_text(encoding="utf-8"), TokenizerConfig)
    except OSError as error:
        raise PackageError(f"{path}: cannot be read: {error.strerror}. {BUILD_AGAIN}") from error
    except UnicodeDecodeError as error:
        raise PackageError(f"{path}: is not UTF-8. {BUILD_AGAIN}") from error
    except JsonMismatch as error:
        raise PackageError(f"{path}: {error}. {BUILD_AGAIN}") from error


def write_config(folder: Path, config: TokenizerConfig) -> None:
    """Writes it for `read_config`."""
    (folder / FILE_NAME).write_text(write_json(config), encoding="utf-8", newline="\n")
