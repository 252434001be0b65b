"""What a line that begins with a slash does. Owns: the commands, names of settings. Needs: a conversation. Never: terminals."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edge.cli.conversation import ChatSettings, Conversation, Message
from edge.cli.kv_figures import kv_lines
from edge.cli.tables import format_table
from edge.errors import RequestError
from edge.units import human_bytes

HELP = (
    ("/set NAME VALUE", "change temperature, top-k, top-p, min-p, repeat-penalty, seed, max-tokens or system"),
    ("/show", "the settings, how much of the context is used, KV preset and policy, and KV memory by zone"),
    ("/undo", "take the last question and its answer back"),
    ("/clear", "forget the conversation"),
    ("/save FILE", "write the conversation as JSON"),
    ("/load FILE", "go on with one that was written"),
    ("/bye", "leave; so do /exit, /quit and Ctrl-D"),
    ("/?", "this list"),
    ('"""', "begins and ends a text of several lines; Alt-Enter adds a line"),
    ("Ctrl-C", "stops an answer"),
)
LARGEST_FILE = 64_000_000  # bytes of a saved conversation
_LONGEST_SHOWN = 200  # characters of a system message
SAVED_ROLES = ("system", "user", "assistant")


class Leave(Exception):
    """The user is done."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How /set reads and writes one value."""

    read: Callable[[ChatSettings], object]
    write: Callable[[ChatSettings, str], ChatSettings]
    meaning: str  # of a value, for messages


def _sampling(field: str, convert: Callable[[str], Any], meaning: str) -> Setting:
    def write(settings: ChatSettings, text: str) -> ChatSettings:
        return replace(settings, sampling=replace(settings.sampling, **{field: convert(text)}))

    return Setting(lambda settings: getattr(settings.sampling, field), write, meaning)


def _seed(text: str) -> object:
    from edge.sampling import RandomSeed

    return RandomSeed() if text == "random" else int(text)


def _max_tokens(settings: ChatSettings, text: str) -> ChatSettings:
    count = int(text)
    if count < 1:
        raise RequestError(f"max-tokens is {count}. Allowed: 1 or more")
    return replace(settings, max_tokens=count)


SETTINGS: dict[str, Setting] = {
    "temperature": _sampling("temperature", float, "a number; 0 takes the best token"),
    "top-k": _sampling("top_k", int, "a whole number; 0 is off"),
    "top-p": _sampling("top_p", float, "a number; 1 is off"),
    "min-p": _sampling("min_p", float, "a number; 0 is off"),
    "repeat-penalty": _sampling("repeat_penalty", float, "a number; 1 is off"),
    "seed": _sampling("seed", _seed, "a whole number, or random"),
    "max-tokens": Setting(lambda settings: settings.max_tokens, _max_tokens, "a whole number"),
    "system": Setting(lambda settings: settings.system, lambda settings, text: replace(settings, system=text), "any text"),
}


def is_command(entry: str) -> bool:
    """Whether the entry is for us and not for the model: a space in front makes it a message."""
    return entry.startswith("/")


def run_command(entry: str, conversation: Conversation) -> str:
    """Does what `entry` says; what to tell the user. RequestError where it says nothing that we know, Leave for /bye."""
    name, _, argument = entry.strip().partition(" ")
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
        hint = f"Did you mean {near[0]}?" if near else "All commands: /?"
        raise RequestError(f"no command {name}. {hint} To send text that begins with a slash, put a space in front")
    return COMMANDS[name](conversation, argument.strip())


def _set(conversation: Conversation, argument: str) -> str:
    name, _, value = argument.partition(" ")
    if not name:
        return _settings_table(conversation)
    if name not in SETTINGS:
        near = difflib.get_close_matches(name, SETTINGS, n=1, cutoff=0.5)
        hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(SETTINGS)}"
        raise RequestError(f"no setting {name!r}. {hint}")
    setting = SETTINGS[name]
    if not value and name != "system":
        raise RequestError(f"/set {name} needs a value: {setting.meaning}")
    if name == "system" and conversation.prefix_name is not None:
        raise RequestError(
            f"the prefix {conversation.prefix_name} holds the system message. For another start without --prefix"
        )
    try:
        conversation.settings = setting.write(conversation.settings, value.strip())
    except ValueError as error:
        raise RequestError(f"{name}: {value!r} is not {setting.meaning}") from error
    return f"{name} = {_shown(setting.read(conversation.settings))}"


def _show(conversation: Conversation, argument: str) -> str:
    turns = sum(message["role"] == "user" for message in conversation.messages)
    used = f"{conversation.used_tokens():,} of {conversation.context:,} tokens, {turns} turns"
    prefix = "" if conversation.prefix_name is None else f"prefix   {conversation.prefix_name}, in its file\n"
    return f"{_settings_table(conversation)}\n\n{prefix}context  {used}\nKV       {conversation.kv_preset}" + kv_lines(
        conversation.kv_bytes()
    )


def _settings_table(conversation: Conversation) -> str:
    return format_table([(name, _shown(setting.read(conversation.settings))) for name, setting in SETTINGS.items()])


def _shown(value: object) -> str:
    if isinstance(value, str):
        more = "" if len(value) <= _LONGEST_SHOWN else f"... ({len(value):,} characters)"
        return json.dumps(value[:_LONGEST_SHOWN], ensure_ascii=False) + more if value else "the template's own"
    return str(value) if isinstance(value, int | float) else "random"


def _undo(conversation: Conversation, argument: str) -> str:
    conversation.undo()
    turns = sum(message["role"] == "user" for message in conversation.messages)
    return f"the last question is taken back, {turns} {'turn is' if turns == 1 else 'turns are'} left"


def _clear(conversation: Conversation, argument: str) -> str:
    conversation.clear()
    return "the conversation is forgotten"


def _save(conversation: Conversation, argument: str) -> str:
    path = _path("/save", argument)
    text = json.dumps({"messages": conversation.messages, "system": conversation.settings.system}, ensure_ascii=False, indent=2)
    try:
        if path.exists():
            raise RequestError(f"{path}: exists already. Give another name")
        aside = path.with_name(f".{path.name}.{os.getpid()}")  # so that a full disk leaves nothing under the name
        try:
            with aside.open("x", encoding="utf-8", newline="\n") as file:
                file.write(text + "\n")
            aside.rename(path)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        raise RequestError(f"{path}: cannot be written: {error.strerror}. Give another place") from error
    return f"{len(conversation.messages)} messages saved to {path}"


def _load(conversation: Conversation, argument: str) -> str:
    path = _path("/load", argument)
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise RequestError(f"{path}: larger than {human_bytes(LARGEST_FILE)}. Give a file that /save wrote")
        saved = json.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise RequestError(f"{path}: cannot be read: {error.strerror}. Check the path") from error
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{path}: is not JSON in UTF-8. Give a file that /save wrote") from error
    if not isinstance(saved, dict) or not isinstance(saved.get("messages"), list) or not isinstance(saved.get("system"), str):
        raise RequestError(f"{path}: has no messages and system. Give a file that /save wrote")
    messages = [_message(path, place, message) for place, message in enumerate(saved["messages"])]
    if conversation.prefix_name is not None and saved["system"] != conversation.settings.system:
        fact = f"has another system message than the prefix {conversation.prefix_name}"
        raise RequestError(f"{path}: {fact}. Load it in a chat without --prefix")
    conversation.settings = replace(conversation.settings, system=saved["system"])
    conversation.replace_messages(messages)
    return f"{len(messages)} messages loaded from {path}"


def _message(path: Path, place: int, message: object) -> Message:
    if not isinstance(message, dict) or message.get("role") not in SAVED_ROLES or not isinstance(message.get("content"), str):
        raise RequestError(f"{path}: message {place} is no text with a role ({', '.join(SAVED_ROLES)}). Correct the file")
    return {"role": message["role"], "content": message["content"]}


def _path(command: str, argument: str) -> Path:
    if not argument:
        raise RequestError(f"{command} needs the name of a file: {command} chat.json")
    try:
        return Path(argument).expanduser()
    except RuntimeError as error:  # ~nobody
        raise RequestError(f"{argument}: no such user. Give the path in full") from error


def _bye(conversation: Conversation, argument: str) -> str:
    raise Leave


def _help(conversation: Conversation, argument: str) -> str:
    return format_table(HELP)


COMMANDS: dict[str, Callable[[Conversation, str], str]] = {
    "/set": _set,
    "/show": _show,
    "/undo": _undo,
    "/clear": _clear,
    "/save": _save,
    "/load": _load,
    "/bye": _bye,
    "/exit": _bye,
    "/quit": _bye,
    "/?": _help,
    "/help": _help,
}
