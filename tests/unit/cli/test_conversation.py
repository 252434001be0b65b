"""A chat as the engine sees it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fake_chat import END, FakeEngine, open_conversation
from tiny_tokenizers import parts_of, written
from vocabulary import BYTE_LEVEL, CHATML

from edge.anchors.zones import ANCHOR, RECENT, SECTION, SINK
from edge.cli.conversation import Conversation
from edge.contract import PAGE_TOKENS
from edge.errors import ExecutorError, RequestError
from edge.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    written(parts_of(BYTE_LEVEL, CHATML), folder)
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.open(folder)


def ask(conversation: Conversation, text: str) -> str:
    return "".join(conversation.ask(text))


def test_an_answer_is_streamed_and_kept(folder: Path, tokenizer: Tokenizer) -> None:
    conversation = open_conversation(folder, FakeEngine(tokenizer, ["Hello 日 <|im_end|>!"]))
    assert ask(conversation, "Hi") == "Hello 日 <|im_end|>!"
    assert conversation.messages == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello 日 <|im_end|>!"},
    ]
    figures = conversation.figures
    assert figures is not None
    assert (figures.finish_reason, figures.reused_tokens) == ("stop", 0)
    assert figures.pace.tokens == len(tokenizer.encode("Hello 日 <|im_end|>!", specials=False)) + 1


def test_the_next_prompt_only_appends_even_where_the_model_chose_other_tokens(folder: Path, tokenizer: Tokenizer) -> None:
    letters = [tokenizer.encode(letter, specials=False)[0] for letter in "the world"]  # not as the tokenizer would cut it
    engine = FakeEngine(tokenizer, [[*letters, END], "b", "c"])
    conversation = open_conversation(folder, engine)
    for text in ("one", "two", "three"):
        ask(conversation, text)
    first, second, third = engine.prompts
    assert second[: len(first) + len(letters)] == first + letters
    assert third[: len(second) + 1] == second + tokenizer.encode("b", specials=False)
    assert tokenizer.decode(second, specials=True).endswith(
        "the world<|im_end|>\n<|im_start|>user\ntwo<|im_end|>\n<|im_start|>assistant\n"
    )
    assert conversation.figures is not None
    assert conversation.figures.reused_tokens == len(second) + 1


def test_an_answer_cut_in_the_middle_of_a_character_goes_on_well(folder: Path, tokenizer: Tokenizer) -> None:
    engine = FakeEngine(tokenizer, ["日", "x"])
    conversation = open_conversation(folder, engine, max_tokens=2)
    assert ask(conversation, "one") == "\ufffd"
    assert conversation.messages[-1]["content"] == "\ufffd"
    ask(conversation, "two")
    assert engine.prompts[1][: len(engine.prompts[0]) + 2] == engine.prompts[0] + tokenizer.encode("日", specials=False)[:2]


def test_a_template_that_trims_answers_gets_the_whole_prompt_anew(tokenizer: Tokenizer, tmp_path: Path) -> None:
    written(parts_of(BYTE_LEVEL, CHATML.replace("message['content']", "message['content'] | trim")), tmp_path)
    engine = FakeEngine(tokenizer, ["  spaced  ", "x"])
    conversation = open_conversation(tmp_path, engine)
    ask(conversation, "one")
    ask(conversation, "two")
    assert "assistant\nspaced<|im_end|>" in tokenizer.decode(engine.prompts[1], specials=True)


def test_what_fits_in_no_context_is_refused_before_it_is_rendered(folder: Path, tokenizer: Tokenizer) -> None:
    engine = FakeEngine(tokenizer, ["a"])
    conversation = open_conversation(folder, engine, context=64)
    for text in ("word " * 100_000, "日" * 100_000):
        with pytest.raises(RequestError):
            conversation.ask(text)
    assert (engine.prompts, conversation.messages) == ([], [])
    assert ask(conversation, "Hi") == "a"


def test_leaving_early_cancels_and_keeps_what_was_said(folder: Path, tokenizer: Tokenizer) -> None:
    engine = FakeEngine(tokenizer, ["abcdef", "x"])
    conversation = open_conversation(folder, engine)
    pieces = conversation.ask("one")
    assert [next(pieces), next(pieces)] == ["a", "b"]
    pieces.close()
    assert engine.cancelled == 1
    assert conversation.messages[-1] == {"role": "assistant", "content": "ab"}
    ask(conversation, "two")
    assert "assistant\nab<|im_end|>\n<|im_start|>user\ntwo" in tokenizer.decode(engine.prompts[1], specials=True)


def test_an_engine_that_fails_leaves_the_chat_as_it_was(folder: Path, tokenizer: Tokenizer) -> None:
    conversation = open_conversation(folder, FakeEngine(tokenizer, [ExecutorError("broken"), "fine"]))
    with pytest.raises(ExecutorError):
        ask(conversation, "one")
    assert conversation.messages == []
    assert ask(conversation, "one") == "fine"


def test_a_chat_over_the_context_is_refused_with_both_counts(folder: Path, tokenizer: Tokenizer) -> None:
    engine = FakeEngine(tokenizer, ["x" * 30, "y"])
    conversation = open_conversation(folder, engine, context=80)
    ask(conversation, "one")
    before = list(conversation.messages)
    with pytest.raises(RequestError, match=r"this chat has \d+ tokens, the context 80.*/clear"):
        ask(conversation, "z" * 40)
    assert conversation.messages == before
    assert len(engine.prompts) == 1


def test_an_answer_stays_inside_the_context(folder: Path, tokenizer: Tokenizer) -> None:
    engine = FakeEngine(tokenizer, ["x" * 500])
    conversation = open_conversation(folder, engine, context=100)
    ask(conversation, "one")
    assert len(engine.prompts[0]) + engine.requests[0][1] == 100


def test_the_system_message_is_in_every_prompt(folder: Path, tokenizer: Tokenizer) -> None:
    engine = FakeEngine(tokenizer, ["a", "b"])
    conversation = open_conversation(folder, engine, system="Be brief <|im_end|>")
    ask(conversation, "one")
    ask(conversation, "two")
    for prompt in engine.prompts:
        assert tokenizer.decode(prompt, specials=True).startswith("<|im_start|>system\nBe brief <|im_end|><|im_end|>\n")
        assert prompt.count(END) == tokenizer.decode(prompt, specials=True).count("<|im_end|>") - 1


def test_messages_become_nfc_and_empty_ones_are_refused(folder: Path, tokenizer: Tokenizer) -> None:
    conversation = open_conversation(folder, FakeEngine(tokenizer, ["a"]))
    ask(conversation, "e\u0301")
    assert conversation.messages[0]["content"] == "\xe9"
    with pytest.raises(RequestError, match="the message is empty"):
        ask(conversation, "")


def test_turns_end_at_cuts_and_so_does_what_the_settings_put_in_front(folder: Path, tokenizer: Tokenizer) -> None:
    engine = FakeEngine(tokenizer, ["a", "b", "c"])
    conversation = open_conversation(folder, engine, system="Be brief.", document="# Manual")
    ask(conversation, "How?")
    ask(conversation, "Why?")
    conversation.clear()
    ask(conversation, "Who?")
    ends = [[prompt[:cut] for cut in cuts] for prompt, cuts in zip(engine.prompts, engine.cuts, strict=True)]
    system = "<|im_start|>system\nBe brief.<|im_end|>"
    said = [[tokenizer.decode(ids, specials=True) for ids in each] for each in ends]
    opening = f"{system}\n<|im_start|>user\n# Manual\n\n"
    first = f"{opening}How?<|im_end|>"
    assert said[0] == [system, first, opening]
    second = f"{first}\n<|im_start|>assistant\na<|im_end|>"
    assert said[1] == [system, first, second, f"{second}\n<|im_start|>user\nWhy?<|im_end|>"]
    assert ends[2][0] == ends[0][0] and ends[2][2] == ends[0][2], "another chat can begin there"


def test_a_question_that_is_taken_back_leaves_the_ids_in_front_of_it(folder: Path, tokenizer: Tokenizer) -> None:
    letters = [tokenizer.encode(letter, specials=False)[0] for letter in "the world"]  # not as the tokenizer would cut it
    engine = FakeEngine(tokenizer, [[*letters, END], "b", "c", "d"])
    conversation = open_conversation(folder, engine)
    for text in ("one", "two"):
        ask(conversation, text)
    conversation.undo()
    assert [message["content"] for message in conversation.messages] == ["one", "the world"]
    ask(conversation, "other")
    assert engine.prompts[2][: len(engine.prompts[0]) + len(letters)] == engine.prompts[0] + letters
    conversation.undo()
    conversation.undo()
    ask(conversation, "one")
    assert engine.prompts[3] == engine.prompts[0]
    conversation.replace_messages([{"role": "user", "content": "Hi"}])
    conversation.undo()
    with pytest.raises(RequestError, match="nothing to take back"):
        conversation.undo()


def test_clearing_forgets_the_turns(folder: Path, tokenizer: Tokenizer) -> None:
    engine = FakeEngine(tokenizer, ["a", "b"])
    conversation = open_conversation(folder, engine)
    ask(conversation, "one")
    assert conversation.used_tokens() > 0
    conversation.clear()
    assert conversation.used_tokens() == 0
    ask(conversation, "one")
    assert engine.prompts[0] == engine.prompts[1]


def test_a_document_stands_in_front_of_the_first_message_and_after_clear_again(folder: Path, tokenizer: Tokenizer) -> None:
    engine = FakeEngine(tokenizer, ["a", "b", "c"])
    conversation = open_conversation(folder, engine, document="# Manual\nPress it.")
    ask(conversation, "How?")
    ask(conversation, "And then?")
    first, _, second, _ = conversation.messages
    assert (first["content"], second["content"]) == ("# Manual\nPress it.\n\nHow?", "And then?")
    conversation.clear()
    ask(conversation, "Why?")
    assert conversation.messages[0]["content"] == "# Manual\nPress it.\n\nWhy?"
    assert tokenizer.decode(engine.prompts[2]).count("Press it.") == 1


def test_a_document_is_not_put_in_front_of_a_loaded_conversation(folder: Path, tokenizer: Tokenizer) -> None:
    conversation = open_conversation(folder, FakeEngine(tokenizer, ["a"]), document="Manual.")
    conversation.replace_messages([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}])
    ask(conversation, "How?")
    assert [message["content"] for message in conversation.messages] == ["Hi", "Hello", "How?", "a"]


DOCUMENT = "".join(f"# Heading {n}\n\n" + "some words that say nothing at all. " * 30 + "\n\n" for n in range(4))


def test_zones_are_those_of_the_document_in_every_turn(folder: Path, tokenizer: Tokenizer) -> None:
    engine = FakeEngine(tokenizer, ["a", "b", "c"])
    conversation = open_conversation(folder, engine, context=20000, document=DOCUMENT)
    ask(conversation, "one")
    ask(conversation, "and what then? " * 40)
    zones = np.frombuffer(engine.zones[0], np.uint8)
    assert engine.zones[0] == engine.zones[1] and zones[0] == SINK and RECENT not in zones
    text = tokenizer.decode(engine.prompts[0], specials=True)
    pages = len(tokenizer.encode(text[: text.index(DOCUMENT) + len(DOCUMENT)], specials=True)) // PAGE_TOKENS
    assert len(zones) in (pages, pages + 1)
    for n in (1, 2, 3):
        token = len(tokenizer.encode(text[: text.index(f"# Heading {n}")], specials=True))
        assert zones[token // PAGE_TOKENS] == ANCHOR
    assert {SECTION} <= set(zones.tolist())
    conversation.replace_messages([{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}])
    ask(conversation, "without the document")
    assert engine.zones[2] == b""


def test_a_short_text_has_no_zones(folder: Path, tokenizer: Tokenizer) -> None:
    engine = FakeEngine(tokenizer, ["a"])
    ask(open_conversation(folder, engine, document="# Heading\n\nshort"), "one")
    assert engine.zones == [b""]
