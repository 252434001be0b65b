"""The prompt of `edge run`: read, and as token ids. Owns: standard input, the way through the chat template. Needs: text, a
package. Never: an engine.

As in run.py, whatever is imported here is waited for by everyone who asks something.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from edge.errors import RequestError
from edge.text.normalise import prompt_text

if TYPE_CHECKING:
    from edge.baked.prefix import BakedPrefix
    from edge.package import Package
    from edge.text.tokenizer import Tokenizer

READ_BYTES = 1 << 20  # of standard input at once


def read_prompt(words: tuple[str, ...], check_length: Callable[[int], None]) -> str:
    """The prompt. Of standard input no more is held than `check_length` lets pass."""
    if words:
        return prompt_text(" ".join(words), "the prompt")
    data = bytearray()
    while block := sys.stdin.buffer.read(READ_BYTES):
        data += block
        check_length(len(data))
    return prompt_text(bytes(data).removesuffix(b"\n"), "standard input")


def prompt_ids(
    package: Package, tokenizer: Tokenizer, prompt: str, *, system: str | None, raw: bool, template_file: Path | None
) -> tuple[list[int], bytes]:
    """Token ids of the prompt, through the chat template where there is one and `raw` allows it; zones of its pages."""
    from edge.anchors.text_zones import text_zones
    from edge.text.template import ChatTemplate, render_chat

    template: ChatTemplate | None = None
    if template_file is not None and not raw:
        template = ChatTemplate.read(template_file, tokenizer)
    elif not raw:
        template = ChatTemplate.find(package.path / "tokenizer", tokenizer)
    if template is None:
        if system is not None:
            raise RequestError(f"{package.path}: completes plain text here, so --system has no place. Leave it out")
        located = tokenizer.encode_prompt_located(prompt)
        return located.ids, text_zones(prompt, located, 0)
    messages = [] if system is None else [{"role": "system", "content": system}]
    chat = render_chat(template, [*messages, {"role": "user", "content": prompt}])
    located, begin = tokenizer.encode_chat_located(chat), chat.text.find(prompt)
    return located.ids, text_zones(prompt, located, begin) if begin >= 0 else b""


def ids_behind(
    prefix: BakedPrefix,
    package: Package,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    system: str | None,
    template_file: Path | None,
) -> list[int]:
    """Token ids of the prompt as the first message behind a baked prefix."""
    from edge.cli.prefix import prefix_ids, prefix_system
    from edge.text.opening import opening_messages
    from edge.text.template import ChatTemplate, render_chat

    template = ChatTemplate.open(package.path / "tokenizer", tokenizer, template_file)
    messages = opening_messages(prefix_system(prefix, system), prefix.header.document, prompt)
    return prefix_ids(prefix, tokenizer, render_chat(template, messages))
