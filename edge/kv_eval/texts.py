"""Long texts that a model is run over. Owns: where they are found, how they are cut. Needs: a tokenizer. Never: downloads.

What is at hand on Debian and its kin is used beside the text that a build reads, so that a claim rests on several documents.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edge.anchors.text_zones import text_zones
from edge.errors import RequestError
from edge.text.located import LocatedIds
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
    zones: bytes = b""  # of its pages, a byte each (anchors.zones)


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
    cut = _cut(tokenizer, texts, tokens)
    return tuple(frame_document(tokenizer, text, located) for text, located in cut[:most])


def cut_texts(tokenizer: Tokenizer, texts: Sequence[Text], tokens: int) -> tuple[Text, ...]:
    """The texts of all such documents. RequestError where no text is long enough."""
    return tuple(text for text, _ in _cut(tokenizer, texts, tokens))


def frame_document(tokenizer: Tokenizer, text: Text, located: LocatedIds) -> Document:
    """All of `text`, whose ids `located` has without what stands in front of a prompt."""
    framed = located.framed(tokenizer.frame(located.ids))
    return Document(text.name, tuple(framed.ids), text_zones(text.text, framed, 0))


def _cut(tokenizer: Tokenizer, texts: Sequence[Text], tokens: int) -> list[tuple[Text, LocatedIds]]:
    """Parts of the texts of so many tokens, what stands in front of a prompt counted, one of each text in turn."""
    room = tokens - len(tokenizer.frame([]))
    encoded = [(text, tokenizer.encode_located(text.text, specials=False)) for text in texts]
    parts = []
    for turn in range(max((len(located.ids) // room for _, located in encoded), default=0)):
        for text, located in encoded:
            if len(located.ids) >= (turn + 1) * room:
                parts.append(cut_text(text, located, turn * room, (turn + 1) * room))
    if not parts:
        lengths = ", ".join(f"{text.name} {len(located.ids):,}" for text, located in encoded) or "none"
        raise RequestError(
            f"--context {tokens}: no text is that long (tokens: {lengths}). Ask for less, or give a longer one: --text FILE"
        )
    return parts


def cut_text(text: Text, located: LocatedIds, begin: int, end: int) -> tuple[Text, LocatedIds]:
    """Tokens begin .. end - 1 of a text, and the characters that they are of."""
    characters = [*located.characters[begin : end + 1].tolist(), len(text.text)]
    return Text(text.name, text.text[characters[0] : characters[end - begin]]), located.part(begin, end)


def _read(path: Path) -> str:
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return data.decode("utf-8")[:_LARGEST_TEXT]
    except UnicodeDecodeError:
        raise RequestError(f"--text {path}: not UTF-8. Give a text file") from None
    except (OSError, EOFError) as error:
        raise RequestError(f"--text {path}: cannot be read ({getattr(error, 'strerror', None) or error}). Check it") from error
