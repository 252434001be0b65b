"""What lines that begin with a slash do."""

from __future__ import annotations

import io
import json
import resource
from pathlib import Path

import pytest
from fake_chat import FakeEngine, open_conversation
from tiny_tokenizers import parts_of, written
from vocabulary import BYTE_LEVEL, CHATML

from edge.cli.chat_commands import COMMANDS, HELP, SETTINGS, Leave, is_command, run_command
from edge.cli.chat_session import talk
from edge.cli.conversation import Conversation
from edge.errors import RequestError
from edge.sampling import RandomSeed


@pytest.fixture
def conversation(tmp_path: Path) -> Conversation:
    tokenizer = written(parts_of(BYTE_LEVEL, CHATML), tmp_path / "tokenizer")
    return open_conversation(tmp_path / "tokenizer", FakeEngine(tokenizer, ["Hello", "again"]))


def test_each_setting_is_read_back_as_it_was_set(conversation: Conversation) -> None:
    for line in ("temperature 0.7", "top-k 40", "top-p 0.9", "min-p 0.05", "repeat-penalty 1.1", "seed 7", "max-tokens 12"):
        name, value = line.split()
        assert run_command(f"/set {line}", conversation) == f"{name} = {value}"
    run_command(f"/set system {'long ' * 100}", conversation)
    assert '"... (499 characters)' in run_command("/show", conversation)
    run_command("/set system You are  brief.", conversation)
    sampling, settings = conversation.settings.sampling, conversation.settings
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (0.7, 40, 0.9, 0.05)
    assert (sampling.repeat_penalty, sampling.seed, settings.max_tokens, settings.system) == (1.1, 7, 12, "You are  brief.")
    shown = run_command("/show", conversation)
    assert all(name in shown for name in SETTINGS)
    assert "0 of 2,048 tokens, 0 turns" in shown
    assert "KV sink" in shown and "2.0 MB  int8 1.5 MB, int4 500.0 kB" in shown
    conversation.kv_preset = "balanced, policy anchors"
    assert "\nKV       balanced, policy anchors\nKV sink" in run_command("/show", conversation)
    run_command("/set seed random", conversation)
    assert isinstance(conversation.settings.sampling.seed, RandomSeed)
    assert "the template's own" in run_command("/set system", conversation)


class NobodyTypes:
    is_interactive = True

    def read(self) -> str:
        raise EOFError


def test_a_chat_begins_with_its_context_preset_and_policy(conversation: Conversation) -> None:
    conversation.kv_preset = "balanced, policy anchors"
    notes = io.StringIO()
    talk(conversation, NobodyTypes(), io.StringIO(), notes, planned_bytes=0)
    assert notes.getvalue().startswith("context 2,048 tokens, KV balanced, policy anchors. /? shows")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/sett x", "Did you mean /set?"),
        ("/xyzzy", "All commands: /?"),
        ("/", "no command /"),
        ("/usr/bin is a folder", "put a space in front"),
        ("/set temprature 1", "Did you mean temperature?"),
        ("/set qqq 1", "There are: temperature"),
        ("/set temperature", "needs a value"),
        ("/set temperature hot", "'hot' is not a number"),
        ("/set temperature -1", "Allowed: 0 or more"),
        ("/set temperature nan", "Allowed: 0 or more"),
        ("/set top-p 2", "Allowed: above 0"),
        ("/set top-k 1.5", "is not a whole number"),
        ("/set max-tokens 0", "Allowed: 1 or more"),
        ("/save", "needs the name of a file"),
        ("/load /nowhere/x.json", "No such file"),
        ("/save /nowhere/x.json", "No such file"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(line: str, message: str, conversation: Conversation) -> None:
    before = conversation.settings
    with pytest.raises(RequestError) as caught:
        run_command(line, conversation)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert conversation.settings == before


def test_a_saved_chat_goes_on_where_it_was(conversation: Conversation, tmp_path: Path) -> None:
    "".join(conversation.ask("Hi é <|im_end|>"))
    run_command("/set system brief", conversation)
    before, file = list(conversation.messages), tmp_path / "my chat.json"
    assert "2 messages saved" in run_command(f"/save {file}", conversation)
    run_command("/clear", conversation)
    run_command("/set system", conversation)
    assert conversation.messages == []
    assert "2 messages loaded" in run_command(f"/load {file}", conversation)
    assert (conversation.messages, conversation.settings.system) == (before, "brief")
    with pytest.raises(RequestError, match="exists already"):
        run_command(f"/save {file}", conversation)


def test_a_chat_that_the_disk_cannot_take_leaves_the_name_free(conversation: Conversation, tmp_path: Path) -> None:
    "".join(conversation.ask("Hi " * 500))
    file = tmp_path / "chat.json"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(RequestError, match=r"chat\.json: cannot be written: File too large"):
            run_command(f"/save {file}", conversation)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.glob("*chat.json*")) == []
    assert "2 messages saved" in run_command(f"/save {file}", conversation)
    assert list(tmp_path.glob("*chat.json*")) == [file]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff", b'{"messages": 1, "system": ""}', b'{"messages": [1], "system": ""}', b"[" * 100000,
     b'{"messages": [{"role": "root", "content": ""}], "system": ""}',
     b'{"messages": [{"role": "user", "content": 1}], "system": ""}'],
)  # fmt: skip
def test_a_file_that_save_did_not_write_is_refused(content: bytes, conversation: Conversation, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(content)
    with pytest.raises(RequestError, match=r"x\.json"):
        run_command(f"/load {file}", conversation)
    assert conversation.messages == []


def test_bye_leaves_and_help_names_every_command(conversation: Conversation) -> None:
    for word in ("/bye", "/exit", "/quit"):
        with pytest.raises(Leave):
            run_command(word, conversation)
    named = " ".join(" ".join(line) for line in HELP)
    assert [name for name in COMMANDS if name not in named] == ["/help"]
    assert run_command("/?", conversation) == run_command("/help", conversation)


def test_a_space_in_front_makes_a_message() -> None:
    assert is_command("/show")
    assert not is_command(" /show")


def test_a_saved_file_is_plain_json(conversation: Conversation, tmp_path: Path) -> None:
    "".join(conversation.ask("Hi"))
    run_command(f"/save {tmp_path / 'x.json'}", conversation)
    saved = json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))
    assert [message["role"] for message in saved["messages"]] == ["user", "assistant"]
