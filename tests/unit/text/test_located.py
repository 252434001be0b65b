"""Which token holds a character, on every family's pipeline: against the bytes of the tokens themselves."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.text.located import _common_ends, _places_of
from edge.text.rendered import Marker, RenderedChat
from edge.text.tokenizer import Tokenizer

pytest.importorskip("tokenizers")
TEXTS = st.text(
    st.one_of(
        st.sampled_from(list("the world ,.\n\t  anioé你好😊\u0301\u0308\u0323éÅ\u212b가각\u1100\u1161\u11a8\u2581שׁאבª")),
        st.characters(exclude_categories=("Cs",)),
    ),
    max_size=40,
)


def check_places(tokenizer: Tokenizer, text: str) -> None:
    """Each token begins where its bytes do: what stands in front of it is as long as the tokens in front of it."""
    located = tokenizer.encode_located(text, specials=False)
    assert located.ids == tokenizer.encode(text, specials=False)
    assert (np.diff(located.places) >= 0).all()
    ends = np.cumsum([len(tokenizer.token_bytes(i, specials=True)) for i in located.ids])
    prefix = len(tokenizer.decode(located.ids, specials=True).encode()) - len(text.encode())
    for character in range(len(text)):
        byte = len(text[:character].encode()) + prefix
        holds = int(np.searchsorted(ends, byte, side="right"))
        assert located.tokens_at([character])[0] == holds, (text, character)


@given(text=TEXTS)
def test_the_token_that_holds_a_character_is_found_in_bytes(bytes_tokenizer: Tokenizer, text: str) -> None:
    check_places(bytes_tokenizer, text)


@given(text=TEXTS.map(lambda text: text.replace("\u2581", "_")))
def test_the_token_that_holds_a_character_is_found_in_pieces(piece_tokenizer: Tokenizer, text: str) -> None:
    check_places(piece_tokenizer, text)


@given(text=TEXTS)
def test_ids_are_those_of_encode_when_text_is_brought_to_nfc(bytes_tokenizer: Tokenizer, text: str) -> None:
    tokenizer = Tokenizer(bytes_tokenizer._tables, replace(bytes_tokenizer.config, nfc=True))
    located = tokenizer.encode_located(text, specials=False)
    assert located.ids == tokenizer.encode(text, specials=False)
    assert (np.diff(located.places) >= 0).all()
    assert not located.ids or located.characters.max() < len(text)


def test_behind_characters_that_nfc_joined_tokens_are_still_found(bytes_tokenizer: Tokenizer) -> None:
    tokenizer = Tokenizer(bytes_tokenizer._tables, replace(bytes_tokenizer.config, nfc=True))
    text = "e\u0301" * 7 + "\u1112\u1161\u11ab" + "\u212b# Title"
    place = text.index("#")
    located = tokenizer.encode_located(text, specials=False)
    token = int(located.tokens_at([place])[0])
    head = tokenizer.decode(located.ids[:token], specials=True)
    assert unicodedata.normalize("NFC", text[:place]).startswith(head)
    assert "#" in tokenizer.token_text(located.ids[token])
    assert len(head) + tokenizer.token_text(located.ids[token]).index("#") == len(unicodedata.normalize("NFC", text[:place]))


@given(text=TEXTS)
def test_places_of_normalised_text_rise_and_stay_inside(text: str) -> None:
    normalised = unicodedata.normalize("NFC", text)
    if text == normalised:
        return
    for places in (_places_of(text, normalised), _common_ends(text, normalised)):
        assert len(places) == len(normalised)
        assert all(left <= right for left, right in pairwise(places))
        assert places[-1] >> 4 < len(text)


def test_what_a_special_token_took_is_in_the_token_in_front(bytes_tokenizer: Tokenizer) -> None:
    text = "a<|im_end|>b"
    located = bytes_tokenizer.encode_located(text, specials=True)
    assert located.ids == bytes_tokenizer.encode(text, specials=True)
    assert located.characters.tolist() == [0, 1, 11]
    assert located.tokens_at([0, 1, 5, 11]).tolist() == [0, 1, 1, 2]


def test_a_bos_stands_in_front_of_the_first_character(piece_tokenizer: Tokenizer) -> None:
    located = piece_tokenizer.encode_prompt_located("the world")
    assert located.ids == piece_tokenizer.encode_prompt("the world")
    assert located.tokens_at([0])[0] == len(located.ids) - len(piece_tokenizer.encode("the world", specials=False))


@given(text=TEXTS)
@pytest.mark.parametrize("name", ["bytes_tokenizer", "piece_tokenizer"])
def test_a_message_is_found_in_a_rendered_chat(name: str, request: pytest.FixtureRequest, text: str) -> None:
    tokenizer = request.getfixturevalue(name)
    message = f"a {text}<|im_end|>Title"
    controls = tokenizer.control_texts()
    marker = Marker(controls, message)
    chat = RenderedChat(f"{controls[0]}{marker.mark(message)}{controls[0]}", marker.restoring)
    located = tokenizer.encode_chat_located(chat)
    assert located.ids == tokenizer.encode_chat(chat)
    place = chat.text.rindex("Title")
    token = int(located.tokens_at([place])[0])
    assert located.characters[token] <= place
    assert token + 1 == len(located.ids) or located.characters[token + 1] > place
    tail = tokenizer.decode(located.ids[token:], specials=True)
    assert "Title" in tail and len(tail) <= len("Title" + controls[0]) + place - located.characters[token]


def test_bos_stands_once_in_front_of_a_chat(piece_tokenizer: Tokenizer) -> None:
    bos = piece_tokenizer.config.bos_token_id
    assert bos is not None and piece_tokenizer.config.add_bos
    written = piece_tokenizer.token_text(bos)
    for count in (0, 1, 3):
        chat = RenderedChat(written * count + "the world", {})
        located = piece_tokenizer.encode_chat_located(chat)
        assert located.ids == piece_tokenizer.encode_chat(chat)
        assert located.ids.count(bos) == 1 and len(located.places) == len(located.ids)
        assert located.tokens_at([len(written) * count])[0] >= 1
