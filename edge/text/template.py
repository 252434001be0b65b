"""Chat templates: messages to the text that a model was trained on. Owns: which template counts, roles, errors. Needs: jinja2
through sandbox.py. Never: token ids (Tokenizer.encode_chat makes them)."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edge.errors import RequestError
from edge.text.normalise import check_text
from edge.text.rendered import Marker, RenderedChat, check_depth
from edge.text.tokenizer import Tokenizer

FILE_NAME = "chat_template.jinja"
MAX_TEMPLATE_CHARS = 64 << 10  # the longest known template has 30 thousand; compiling takes 1.4 KB for each
# Templates write roles into control tokens (`<|{{ role }}|>`), so a role is one of these and nothing else.
ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
NEXT_STEP = "Use another template: --chat-template-file FILE"


class ChatTemplate:
    """A template ready to render. Safe to share between threads."""

    def __init__(self, source: str, tokenizer: Tokenizer, origin: str) -> None:
        """`origin` names the template in messages. RequestError where it is not a template that we run."""
        from edge.text.sandbox import Sandbox

        self._origin = origin
        if len(source) > MAX_TEMPLATE_CHARS:
            raise RequestError(f"{origin}: has {len(source):,} characters, the most is {MAX_TEMPLATE_CHARS:,}. {NEXT_STEP}")
        self._sandbox = Sandbox()
        try:
            self._template = self._sandbox.from_string(source)
        except Exception as error:  # Jinja's compiler lets Python's own errors through: RecursionError, SyntaxError
            raise self._refusal(error) from error
        self._controls = tokenizer.control_texts()
        config = tokenizer.config
        named = {"bos_token": config.bos_token_id, "unk_token": config.unk_token_id, "pad_token": config.pad_token_id}
        eos = config.eos_token_ids[0] if config.eos_token_ids else None
        named["eos_token"] = eos
        self._tokens = {name: "" if token_id is None else tokenizer.token_text(token_id) for name, token_id in named.items()}

    @classmethod
    def open(cls, folder: Path, tokenizer: Tokenizer, instead: Path | None = None) -> ChatTemplate:
        """The template of a package's tokenizer folder, or of the file `instead`. RequestError for a base model, which has
        none."""
        template = cls.find(folder, tokenizer) if instead is None else cls.read(instead, tokenizer)
        if template is None:
            raise RequestError(f"{folder}: a base model: no chat template; use edge run, which completes text")
        return template

    @classmethod
    def find(cls, folder: Path, tokenizer: Tokenizer) -> ChatTemplate | None:
        """The template of a package's tokenizer folder: chat_template.jinja, else the one in tokenizer_config.json; None for a
        base model."""
        path = folder / FILE_NAME
        if path.is_file():
            return cls.read(path, tokenizer)
        if tokenizer.config.chat_template is None:
            return None
        return cls(tokenizer.config.chat_template, tokenizer, f"{folder}: chat_template of tokenizer_config.json")

    @classmethod
    def read(cls, path: Path, tokenizer: Tokenizer) -> ChatTemplate:
        """A template from a file of its own."""
        try:
            source = path.read_bytes().decode("utf-8")
        except OSError as error:
            raise RequestError(f"{path}: cannot be read: {error.strerror}. Check the path and its permissions") from error
        except UnicodeDecodeError as error:
            raise RequestError(f"{path}: byte {error.start} is not UTF-8. Save the template as UTF-8") from error
        return cls(source, tokenizer, str(path))

    def render(self, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]) -> RenderedChat:
        """See `render_chat`."""
        outside = {**variables, "messages": list(messages)}
        check_depth(outside)
        marker = Marker(self._controls, outside)
        marked = marker.mark(outside)
        for message in marked["messages"]:
            message.setdefault("content", None)
        try:
            text = self._sandbox.render(self._template, {**self._tokens, **marked}, _length(outside))
        except Exception as error:  # a template can raise whatever Python raises: 1/0, a missing key
            raise self._refusal(error) from error
        check_text(text, f"{self._origin}: what it makes of these messages")  # a lone surrogate can stand in any of their parts
        return RenderedChat(text, marker.restoring)

    def _refusal(self, error: Exception) -> RequestError:
        from edge.text.sandbox_budget import Raised

        if isinstance(error, Raised):
            return RequestError(f"{self._origin}: refuses these messages: {error}. Change them. {NEXT_STEP}")
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<template>"]
        line = getattr(error, "lineno", None) or (lines[-1] if lines else None)
        place = f"{self._origin}: line {line}" if line else self._origin
        kind = "" if type(error).__module__.startswith("jinja2") else f"{type(error).__name__}: "
        reason = "; ".join(str(error).rstrip(".").splitlines()) or "no reason given"
        return RequestError(f"{place}: the chat template cannot be used: {kind}{reason}. {NEXT_STEP}")


def render_chat(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    *,
    add_generation_prompt: bool = True,
    variables: Mapping[str, Any] | None = None,
) -> RenderedChat:
    """Renders `messages` ({"role": ..., "content": ...}); `variables` are what the template takes besides (tools, ...).

    RequestError for an unknown role, for text that is no Unicode, and for a template that fails, refuses, calls out, or
    uses more time or memory than it may.
    """
    if not messages:
        raise RequestError("the chat has no messages. Give at least one")
    for place, message in enumerate(messages):
        role = message.get("role")
        if not isinstance(role, str) or role not in ROLES:
            raise RequestError(f"message {place} has the role {role!r}. Roles: {', '.join(sorted(ROLES))}")
        if isinstance(content := message.get("content"), str):
            check_text(content, f"message {place}")
    return template.render(messages, {**(variables or {}), "add_generation_prompt": add_generation_prompt})


def _length(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(_length(key) + _length(item) for key, item in value.items())
    return sum(map(_length, value)) if isinstance(value, list | tuple) else 1
