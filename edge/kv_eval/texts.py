"""Long texts that a model is run over. Owns: where they are found, how they are cut. Needs: a tokenizer. Never: downloads.

What is at hand on Debian and its kin is used beside the text that a build reads, so that a claim rests on several documents.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edge.errors import RequestError
from edge.text.tokenizer import Tokenizer

# name: files of which the first that exist make the text. Licences are short: one behind the other they are a long document.
_AT_HAND: dict[str, tuple[str, ...]] = {
    "licences": tuple(
        f"/usr/share/common-licenses/{name}" for name in ("GPL-3", "GFDL-1.3", "MPL-2.0", "LGPL-2.1", "Apache-2.0", "Artistic")
    ),
    "debian-policy": ("/usr/share/doc/debian-policy/policy.txt.gz", "/usr/share/doc/debian-policy/policy.txt"),
    "bible-kjv": ("/usr/share/bible-kjv/kjv.txt", "/usr/share/doc/bible-kjv-text/bible.txt.gz"),
}
_LARGEST_TEXT = 4 << 20  # characters that are read of a file


@dataclass(frozen=True, slots=True)
class Text:
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Document:
    """A window of a text, framed as the model expects a prompt (BOS in front)."""

    text: str  # its name
    ids: tuple[int, ...]


def texts_at_hand() -> tuple[Text, ...]:
    """What this machine has of the known places; none where it has nothing."""
    found = []
    for name, places in _AT_HAND.items():
        parts = [_read(Path(place)) for place in places if Path(place).is_file()]
        if parts:
            found.append(Text(name, "\n\n".join(parts)))
    return tuple(found)


def read_texts(paths: Sequence[Path]) -> tuple[Text, ...]:
    """The files that a user gives. RequestError for one that cannot be read as UTF-8 text."""
    return tuple(Text(path.name, _read(path)) for path in paths)


def cut_documents(tokenizer: Tokenizer, texts: Sequence[Text], tokens: int, most: int) -> tuple[Document, ...]:
    """Up to `most` documents of exactly `tokens` ids, one of each text in turn, from the front. RequestError where no text is
    long enough."""
    room = tokens - len(tokenizer.frame([]))
    encoded = {text.name: tokenizer.encode(text.text, specials=False) for text in texts}
    documents = []
    for turn in range(max((len(ids) // room for ids in encoded.values()), default=0)):
        for name, ids in encoded.items():
            piece = ids[turn * room : (turn + 1) * room]
            if len(piece) == room:
                documents.append(Document(name, tuple(tokenizer.frame(piece))))
    if not documents:
        lengths = ", ".join(f"{name} {len(ids):,}" for name, ids in encoded.items()) or "none"
        raise RequestError(
            f"--context {tokens}: no text is that long (tokens: {lengths}). Ask for less, or give a longer one: --text FILE"
        )
    return tuple(documents[:most])


def _read(path: Path) -> str:
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return data.decode("utf-8")[:_LARGEST_TEXT]
    except UnicodeDecodeError:
        raise RequestError(f"--text {path}: not UTF-8. Give a text file") from None
    except (OSError, EOFError) as error:
        raise RequestError(f"--text {path}: cannot be read ({getattr(error, 'strerror', None) or error}). Check it") from error
