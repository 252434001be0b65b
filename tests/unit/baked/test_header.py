"""The file of a baked prefix: what is written is read, and whatever else stands there is refused."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from baked_files import CUTS, GROUPS, IDS, MODEL, POOL, draft, extent, packed, words_at, write_prefix
from hypothesis import given
from hypothesis import strategies as st

from edge.baked.header import BakedHeader, header_bytes, pack_ints, read_header, unpack_ints
from edge.baked.prefix import BakedPrefix, rest_formats
from edge.contract import EMPTY, OFFSET_UNIT, word_offset
from edge.errors import PackageError
from edge.jsons import write_json
from edge.progress import SilentProgress


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> BakedPrefix:
    return write_prefix(tmp_path_factory.mktemp("baked") / "manual.pages")


@pytest.fixture(scope="module")
def data(prefix: BakedPrefix) -> bytes:
    return prefix.path.read_bytes()


def read(data: bytes) -> BakedHeader:
    return read_header(io.BytesIO(data), "a.pages")


def test_each_cut_has_the_pages_of_its_sequence_once(prefix: BakedPrefix) -> None:
    cuts = prefix.cuts(MODEL)
    assert [cut.tokens for cut in cuts] == list(CUTS) and prefix.token_ids == IDS
    offsets: dict[int, int] = {}
    for cut in cuts:
        table = words_at(cut.tokens)
        for index, group in enumerate(GROUPS):
            for page, *kinds in rest_formats(group, cut.tokens):
                for side, kind in enumerate(kinds):
                    word = int(cut.words[index, page, side])
                    if kind is None:
                        assert word == EMPTY
                        continue
                    begin = word_offset(int(table[index, page, side]))
                    assert extent(prefix, word, kind.bytes) == POOL[begin : begin + kind.bytes].tobytes()
                    offsets[word_offset(word)] = kind.bytes
    ends = sorted((offset, offset + size) for offset, size in offsets.items())
    assert all(end <= begin for (_, end), (begin, _) in pairwise(ends)), "two extents in one place"
    assert sum(offsets.values()) <= prefix.header.extent_bytes < sum(offsets.values()) + 4096
    assert prefix.header.begin % 4096 == 0 and prefix.path.stat().st_size == prefix.header.file_bytes
    own = prefix.cut_bytes(MODEL)
    assert all(size > 0 for size in own) and sum(own) < prefix.header.extent_bytes, "cuts share what was sealed before"
    prefix.verify(SilentProgress())


def test_a_changed_page_is_found_by_its_hash(prefix: BakedPrefix, tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.pages"
    path.write_bytes(data[:-1] + b"\1")
    with pytest.raises(PackageError, match=r"a\.pages: SHA-256 of its pages is "):
        BakedPrefix.open(path).verify(SilentProgress())


@given(count=st.integers(0, 1 << 16))
def test_a_file_cut_anywhere_is_refused(data: bytes, count: int) -> None:
    with pytest.raises(PackageError, match=r"a\.pages: (cut short|not a baked prefix)"):
        read(data[: count % len(data)])


@given(data=st.binary(max_size=300))
def test_bytes_that_nobody_wrote_are_no_prefix(data: bytes) -> None:
    with pytest.raises(PackageError):
        read(data)
    with pytest.raises(PackageError):
        read(b"EDGEPAGE" + data)
    with pytest.raises(PackageError):
        read(packed(data))


@given(at=st.integers(0), bit=st.integers(0, 7))
def test_a_header_with_another_bit_is_refused(prefix: BakedPrefix, data: bytes, at: int, bit: int) -> None:
    length = 48 + int.from_bytes(data[8:16], "little")
    spoiled = bytearray(data)
    spoiled[at % length] ^= 1 << bit
    with pytest.raises(PackageError):
        read(bytes(spoiled))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.data())
def test_a_header_of_other_values_is_read_or_refused(prefix: BakedPrefix, choices: st.DataObject) -> None:
    """Whatever a key holds: a PackageError, or words that lie in the file."""
    plain: dict[str, Any] = json.loads(write_json(prefix.header))
    place: Any = plain
    while isinstance(place, dict | list) and place:
        key = choices.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], dict | list) or choices.draw(st.booleans()):
            numbers = st.integers(-(1 << 31), (1 << 31) - 1)
            words = st.lists(numbers | st.just(EMPTY), max_size=50).map(pack_ints)
            place[key] = choices.draw(
                json_values | words | st.integers(-5, 1 << 50) | st.text("0123456789abcdef", min_size=64, max_size=64)
            )
            break
        place = place[key]
    text = json.dumps(plain).encode("utf-8", "surrogatepass")
    body = packed(text)
    body = body.ljust(prefix.header.begin, b"\0") + bytes(prefix.header.extent_bytes)
    try:
        header = read(body)
        found = BakedPrefix(prefix.path, header, prefix.identity).cuts(MODEL)
    except PackageError:
        return
    for cut in found:
        offsets = (cut.words[cut.words != EMPTY] & ((1 << 28) - 1)) * OFFSET_UNIT
        assert (offsets < header.extent_bytes).all()


def spoiled_words(prefix: BakedPrefix, change: Any) -> BakedPrefix:
    cut = prefix.header.cuts[-1]
    words = unpack_ints(cut.words, "words").reshape(len(GROUPS), -1, 2)
    change(words)
    header = replace(prefix.header, cuts=(*prefix.header.cuts[:-1], replace(cut, words=pack_ints(words))))
    return BakedPrefix(
        prefix.path, read(header_bytes(header).ljust(header.begin, b"\0") + bytes(header.extent_bytes)), prefix.identity
    )


@pytest.mark.parametrize(
    ("place", "word", "said"),
    [
        ((0, 3, 0), EMPTY, "page 3 of 640 tokens is not int4"),
        ((0, 3, 0), 0, "page 3 of 640 tokens is not int4"),
        ((0, 0, 0), 2 << 28, "page 0 of 640 tokens is not fp16"),
        ((1, 0, 1), 0, "page 0 of 640 tokens is there, behind a window of 200"),
        ((0, 19, 1), (1 << 28) - 1, "page 19 of 640 tokens lies outside of the file"),
        ((0, 3, 0), (2 << 28), "page 3 of 640 tokens lies where another kind of page does"),
    ],
)
def test_words_that_no_sequence_has_are_refused(prefix: BakedPrefix, place: tuple[int, int, int], word: int, said: str) -> None:
    def change(words: np.ndarray) -> None:
        words[place] = word

    with pytest.raises(PackageError, match=f"damaged: {said}"):
        spoiled_words(prefix, change).cuts(MODEL)


def test_ids_of_another_vocabulary_are_refused(prefix: BakedPrefix) -> None:
    header = replace(prefix.header, token_ids=pack_ints([*IDS[:-1], 300]))
    with pytest.raises(PackageError, match="token id 300 is outside the vocabulary of 300"):
        BakedPrefix(prefix.path, header, prefix.identity).cuts(MODEL)
    header = replace(prefix.header, token_ids=pack_ints(IDS[:639]))
    with pytest.raises(PackageError, match="639 tokens, pages for 640"):
        BakedPrefix(prefix.path, header, prefix.identity).cuts(MODEL)


def test_another_version_of_the_format_is_named(prefix: BakedPrefix) -> None:
    text = write_json(draft()).replace('"format_version": 1', '"format_version": 7').replace('"begin"', '"start"')
    with pytest.raises(PackageError, match=r"a\.pages: format 7, this version reads 1\. Bake it again"):
        read(packed(text.encode()))


def test_numbers_of_a_header_come_back() -> None:
    assert unpack_ints(pack_ints([1, -1, 1 << 30]), "x", 3).tolist() == [1, -1, 1 << 30]
    for text, count in (("AAAA", None), ("AAAA", 1), ("!!!!", None), ("\u00e4", None), (pack_ints([1]), 2)):
        with pytest.raises(ValueError, match=r"^x: "):
            unpack_ints(text, "x", count)
