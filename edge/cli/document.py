"""The file of `edge chat --file`. Owns: reading it, the context that it needs. Needs: text, a package. Never: a runtime."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from edge.cli.conversation import ChatSettings, with_document
from edge.config import InferenceConfig
from edge.errors import RequestError
from edge.text.normalise import prompt_text
from edge.text.template import ChatTemplate, render_chat
from edge.units import human_bytes

if TYPE_CHECKING:
    from edge.kv_budget import KvChoice
    from edge.package import Package
    from edge.text.tokenizer import Tokenizer

_BLOCK = 1 << 20  # bytes read at once
_QUESTION_TOKENS = 64  # for which there must be room behind the file, the first of its answer counted
_TALK_TOKENS = 512  # of questions beside the answer, where we choose the context


def read_document(path: Path, check_length: Callable[[int], None]) -> str:
    """The text of the file, without the line ends behind it. RequestError where it cannot be read, is not UTF-8, is empty, or
    is longer than `check_length` lets pass; no more than that is held."""
    is_text = True  # what is none is not said to be too long
    data, decoder = bytearray(), codecs.getincrementaldecoder("utf-8")()
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                data += block
                is_text = is_text and _is_text(decoder, block)
                if is_text:
                    check_length(len(data))
                else:
                    break
    except OSError as error:
        raise RequestError(f"--file {path}: cannot be read: {error.strerror}. Check the path") from error
    except RequestError as error:
        raise RequestError(f"--file {path}: {error}") from error
    # Some editors put a byte order mark in front, which is no text.
    return prompt_text(bytes(data).removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n"), f"--file {path}")


def _is_text(decoder: codecs.IncrementalDecoder, block: bytes) -> bool:
    try:
        decoder.decode(block)
    except UnicodeDecodeError:
        return False
    return True


def document_context(
    package: Package,
    kv: KvChoice,
    tokenizer: Tokenizer,
    template: ChatTemplate,
    settings: ChatSettings,
    path: Path,
    asked: int | None,
) -> int | None:
    """The context for a chat about the document of `settings`: what is asked for, all that a KV budget holds (None), or enough
    for the document, a question and an answer: also beside a budget, where it holds them with pages demoted. RequestError or
    BudgetError, with tokens and bytes, where the document leaves no room for them."""
    from edge.cli.text_zones import text_zones
    from edge.footprint import check_prompt_budget
    from edge.kv_budget import longest_in_budget
    from edge.pages.policy import kept_pages, read_zones

    opening = [{"role": "system", "content": settings.system}] if settings.system else []
    message = {"role": "user", "content": with_document(settings.document, "?")}
    chat = render_chat(template, [*opening, message])
    located = tokenizer.encode_chat_located(chat)
    tokens = len(located.ids)
    size = f"--file {path}: {human_bytes(len(settings.document.encode()))} are {tokens:,} tokens"
    needed, limit = tokens + _QUESTION_TOKENS, package.manifest.limits.max_context
    if needed > (most := limit if asked is None else asked):
        where = "the engine takes" if asked is None else "--ctx-size is"
        longer = f"Give --ctx-size {min(limit, tokens + _TALK_TOKENS + settings.max_tokens)}, or leave it out"
        step = "Shorten the file" if needed > limit else longer
        raise RequestError(f"{size}, which with a question needs a context of {needed:,}; {where} {most:,}. {step}")
    begin = chat.text.find(settings.document)
    zones = text_zones(settings.document, located, begin) if begin >= 0 else b""
    held = check_prompt_budget(package, kv, f"{size}, which with a question", needed, kept_pages(read_zones(zones)))
    if asked is not None:
        return asked
    if kv.budget_bytes is not None:
        is_held = needed <= longest_in_budget(package.spec, kv, 1, limit, InferenceConfig.load())
        return None if is_held else min(held, tokens + _TALK_TOKENS + settings.max_tokens)
    return min(limit, max(InferenceConfig.load().context, tokens + _TALK_TOKENS + settings.max_tokens))
