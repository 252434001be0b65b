"""Chat templates that nobody wrote for us, and chats that nobody typed. Owns: seeds of both. Needs: the tests of templates.
Never: the sandbox."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import jinja_grammar
from json_mutations import JsonSeed
from siblings import add_siblings
from target_tokenizer import tokenizers_in
from text_pools import draw_text

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi <|im_end|> & <b>"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.5, None]}}}]},
        {"role": "tool", "content": [{"type": "text", "text": "blue"}]}]  # fmt: skip
TALK = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "<think>\nso\n</think>\n\nHo"},
        {"role": "user", "content": "a <|im_end|> b"}]  # fmt: skip


def _seeds() -> list[str]:
    add_siblings()
    from test_template_shapes import GEMMA, LLAMA, MISTRAL, QWEN
    from vocabulary import CHATML

    return [CHATML, LLAMA, QWEN, MISTRAL, GEMMA]


class TemplateTarget:
    """Compiles a template and renders a chat with it."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = tokenizers_in(folder)[0]
        self._seeds = _seeds()

    def make(self, random: Random) -> bytes:
        if (way := random.random()) < 0.45:
            text = jinja_grammar.template(random)
        elif way < 0.985:
            text = jinja_grammar.damaged(random, self._seeds)
        else:
            text = jinja_grammar.monstrous(random)
        return bytes([random.random() < 0.3]) + text.encode("utf-8", "surrogatepass")

    def run(self, data: bytes) -> None:
        from edge.text.template import ChatTemplate, render_chat

        template = ChatTemplate(data[1:].decode("utf-8", "surrogatepass"), self._tokenizer, "t")
        chat = render_chat(template, CHAT if data[0] else TALK, variables={"tools": [CHAT[2]]})
        self._tokenizer.encode_chat(chat)


class ChatTarget:
    """Renders any messages with templates of known families. No text of theirs becomes a control token."""

    def __init__(self, folder: Path) -> None:
        from edge.text.template import ChatTemplate

        self._tokenizer = tokenizers_in(folder)[0]
        self._templates = [ChatTemplate(source, self._tokenizer, "t") for source in _seeds()]
        self._seed = JsonSeed({"messages": CHAT, "variables": {"tools": [CHAT[2]], "date_string": "today"}})

    def make(self, random: Random) -> bytes:
        place = random.randrange(len(self._templates))
        if random.random() < 0.5:
            return bytes([place]) + self._seed.mutate(random)
        messages = [
            {"role": message["role"], "content": draw_text(random)} for message in random.choices(CHAT, k=random.randrange(5))
        ]
        return bytes([place]) + json.dumps({"messages": messages, "variables": {}}).encode()

    def run(self, data: bytes) -> None:
        from edge.errors import RequestError
        from edge.jsons import JsonMismatch, parse_json
        from edge.text.template import render_chat

        try:
            plain: Any = parse_json(data[1:].decode("utf-8"))
            messages, variables = list(plain["messages"]), dict(plain["variables"])
            if not all(isinstance(message, dict) for message in messages):
                raise TypeError
        except (JsonMismatch, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
            raise RequestError("no chat") from error  # who takes requests looks after their form
        chat = render_chat(self._templates[data[0]], messages, variables=variables)
        ids = self._tokenizer.encode_chat(chat)
        written = sum(chat.marked.count(control) for control in self._tokenizer.control_texts())
        controls = [token for token in ids if self._tokenizer.token_bytes(token, specials=False) == b""]
        assert len(controls) <= written + 1, f"{len(controls)} control tokens, the template wrote {written}"
