"""The opening of a chat: whatever is asked, its ids are those that the whole chat begins with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.text.opening import Opening, find_opening, opening_messages
from edge.text.template import ChatTemplate, render_chat
from edge.text.tokenizer import Tokenizer

TURNS = (
    "{% for m in messages %}{{ '<start_of_turn>' + m.role + '\n' + m.content | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{{ '<start_of_turn>model\n' }}"
)
WORDS = st.lists(
    st.sampled_from(["the", "world", "is", "an", "other", "\n", "\n\n", "# Part", "42", "\u4f60\u597d", "...", "  "])
)
TEXT = st.text("theworld ,.!?'\n42\u00e9\u4f60\U0001f60a\u2581", min_size=1, max_size=60) | st.text(min_size=1, max_size=20)


def check(tokenizer: Tokenizer, template: ChatTemplate, opening: Opening, question: str) -> None:
    chat = render_chat(template, opening_messages(opening.system, opening.document, question))
    if opening.token_ids:
        assert chat.text.startswith(opening.text)
        behind = tokenizer.encode_chat(chat, start=len(opening.text))
        assert [*opening.token_ids, *behind] == tokenizer.encode_chat(chat), question


@pytest.mark.parametrize("kind", ["bytes", "pieces"])
@given(words=WORDS, ends=TEXT, system=st.just("") | TEXT, question=TEXT)
def test_an_opening_is_what_each_chat_begins_with(
    chatml: ChatTemplate, bytes_tokenizer: Tokenizer, piece_tokenizer: Tokenizer, kind: str,
    words: list[str], ends: str, system: str, question: str,
) -> None:  # fmt: skip
    tokenizer = bytes_tokenizer if kind == "bytes" else piece_tokenizer
    template = chatml if kind == "bytes" else ChatTemplate(TURNS, tokenizer, "t")
    document = f"{' '.join(words)} {ends}"
    opening = find_opening(tokenizer, template, system, document)
    check(tokenizer, template, opening, question)


def test_an_opening_ends_at_most_a_few_words_in_front_of_the_question(chatml: ChatTemplate, bytes_tokenizer: Tokenizer) -> None:
    document = "the world is in the hand of an other. " * 40 + "That is all."
    opening = find_opening(bytes_tokenizer, chatml, "", document)
    whole = render_chat(chatml, opening_messages("", document, "What?")).text
    assert whole.index("What?") - len(opening.text) <= 64
    assert len(opening.token_starts) == len(opening.token_ids)
    assert opening.text[opening.token_starts[-1] :] == bytes_tokenizer.token_text(opening.token_ids[-1])
    system = find_opening(bytes_tokenizer, chatml, document, "")
    assert system.text.startswith("<|im_start|>system\nthe world") and len(system.token_ids) > 300


def test_a_template_that_puts_the_question_first_has_no_opening(bytes_tokenizer: Tokenizer) -> None:
    template = ChatTemplate("{{ messages[-1].content | reverse | list | join }}", bytes_tokenizer, "t")
    opening = find_opening(bytes_tokenizer, template, "", "the world " * 50)
    assert (opening.token_ids, opening.text) == ([], "")
