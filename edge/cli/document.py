"""The file of `edge chat --file`. Owns: reading it, the context that it needs. Needs: text, a package. Never: a runtime."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edge.cli.conversation import ChatSettings
from edge.config import InferenceConfig
from edge.errors import RequestError
from edge.text.normalise import prompt_text
from edge.text.opening import opening_messages
from edge.text.template import ChatTemplate, render_chat
from edge.units import human_bytes

if TYPE_CHECKING:
    from edge.kv_budget import KvChoice
    from edge.package import Package
    from edge.text.tokenizer import Tokenizer

_BLOCK = 1 << 20  # bytes read at once
QUESTION_TOKENS = 64  # for which there must be room behind the file, the first of its answer counted
_TALK_TOKENS = 512  # of questions beside the answer, where we choose the context


def read_document(path: Path, check_length: Callable[[int], None], option: str = "--file") -> str:
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
        raise RequestError(f"{option} {path}: cannot be read: {error.strerror}. Check the path") from error
    except RequestError as error:
        raise RequestError(f"{option} {path}: {error}") from error
    # Some editors put a byte order mark in front, which is no text.
    return prompt_text(bytes(data).removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n"), f"{option} {path}")


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
    from edge.anchors.text_zones import text_zones

    chat = render_chat(template, opening_messages(settings.system, settings.document, "?"))
    located = tokenizer.encode_chat_located(chat)
    begin, tokens = chat.text.find(settings.document), len(located.ids)
    size = f"--file {path}: {human_bytes(len(settings.document.encode()))} are {tokens:,} tokens"
    find_zones = partial(text_zones, settings.document, located, begin) if begin >= 0 else bytes
    return context_for(package, kv, size, tokens, settings.max_tokens, asked, find_zones)


def context_for(
    package: Package,
    kv: KvChoice,
    size: str,
    tokens: int,
    answer_tokens: int,
    asked: int | None,
    find_zones: Callable[[], bytes] = bytes,
) -> int | None:
    """As `document_context`, where it is known that what stands in front of the first question has so many tokens; `size` says
    so. `find_zones` gives those of its pages; without, none of them is kept from demotion."""
    from edge.footprint import check_prompt_budget
    from edge.kv_budget import longest_in_budget
    from edge.pages.policy import kept_pages, read_zones

    needed, limit = tokens + QUESTION_TOKENS, package.manifest.limits.max_context
    if needed > (most := limit if asked is None else asked):
        where = "the engine takes" if asked is None else "--ctx-size is"
        longer = f"Give --ctx-size {min(limit, tokens + _TALK_TOKENS + answer_tokens)}, or leave it out"
        step = "Shorten it" if needed > limit else longer
        raise RequestError(f"{size}, which with a question needs a context of {needed:,}; {where} {most:,}. {step}")
    kept = kept_pages(read_zones(find_zones()))
    held = check_prompt_budget(package, kv, f"{size}, which with a question", needed, kept)
    if asked is not None:
        return asked
    chosen = min(limit, max(InferenceConfig.load().context, tokens + _TALK_TOKENS + answer_tokens))
    if kv.budget_bytes is None:
        return chosen
    is_held = needed <= longest_in_budget(package.spec, kv, 1, limit, InferenceConfig.load())
    return None if is_held else min(held, tokens + _TALK_TOKENS + answer_tokens)
