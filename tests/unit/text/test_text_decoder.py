"""Bytes to characters, as they come."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edge.text.decoder import TextDecoder, decode_bytes


def cut(data: bytes, places: list[int]) -> list[bytes]:
    borders = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(borders)]


@given(
    data=st.binary(max_size=60) | st.text(max_size=20).map(lambda t: t.encode("utf-8", "replace")),
    places=st.lists(st.integers(0, 60)),
)
@example(data=b"\xe6\xad", places=[1])
@example(data="😊é".encode(), places=[1, 2, 3, 5])
@example(data=b"a\xf0\x9f\x98A\xed\xa0\x80\xc0\xaf", places=[1, 2, 3, 4, 5, 6, 7, 8])
def test_joined_pieces_equal_the_whole_wherever_it_is_cut(data: bytes, places: list[int]) -> None:
    decoder = TextDecoder()
    assert "".join([*map(decoder.push, cut(data, places)), decoder.finish()]) == decode_bytes(data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xe6\xad", "\ufffd"),  # a cut character is one subpart
        (b"\xe6\xad\xa3", "正"),
        (b"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", "\ufffd" * 8 + "A"),  # Unicode 15, table 3-8
        (b"\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", "\ufffd" * 8 + "A"),  # table 3-9
        (b"\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", "\ufffd" * 5 + "A" + "\ufffd" * 2 + "B"),  # table 3-10
        (b"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", "\ufffd" * 4 + "A"),  # table 3-11
    ],
)
def test_invalid_bytes_become_what_unicode_says(data: bytes, text: str) -> None:
    decoder = TextDecoder()
    assert "".join([*(decoder.push(bytes([byte])) for byte in data), decoder.finish()]) == text


def test_bytes_that_may_become_a_character_are_held_back_and_no_longer() -> None:
    decoder = TextDecoder()
    assert [decoder.push(bytes([byte])) for byte in b"\xe6\xad\x41"] == ["", "", "\ufffdA"]
    assert decoder.finish() == ""


def test_a_finished_decoder_is_as_new() -> None:
    decoder = TextDecoder()
    decoder.push(b"\xf0\x9f")
    assert decoder.finish() == "\ufffd"
    assert decoder.push(b"\x98\x8a") == "\ufffd\ufffd"
