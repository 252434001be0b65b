"""A chat as the engine sees it. Owns: messages, the token ids that stand for them, settings. Needs: text, an engine.
Never: terminals."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from edge.baked.header import BAKE_COMMAND
from edge.errors import RequestError
from edge.interrupts import deferred_interrupts
from edge.pace import Pace
from edge.text.normalise import prompt_text
from edge.text.opening import with_document
from edge.text.rendered import RenderedChat
from edge.text.template import ChatTemplate, render_chat
from edge.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from edge.pages.account import ZoneBytes
    from edge.request import FinishReason, TokenEvent
    from edge.sampling import SamplingParams

Message = dict[str, str]  # role, content


class AnswerEvents(Iterator["TokenEvent"], Protocol):
    """Tokens of one answer as they come (edge.events.Events)."""

    @property
    def reused_tokens(self) -> int:
        """Of the prompt, those that were not computed for it; certain when the first token has come."""

    def close(self) -> None:
        """Cancels the request where it has not ended."""


class ChatEngine(Protocol):
    """What a chat needs of an engine: one sequence whose computed front is used again (edge.session.Session)."""

    def generate(
        self,
        prompt_ids: list[int],
        sampling: SamplingParams,
        max_tokens: int,
        stop_ids: frozenset[int],
        cuts: list[int],
        *,
        zones: bytes,
    ) -> AnswerEvents:
        """Tokens of one answer. At `cuts` other chats may part from this one; `zones` of its pages, a byte each."""

    def kv_bytes(self) -> ZoneBytes:
        """What its pages take."""


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """What /set changes; each answer uses those of its moment."""

    sampling: SamplingParams
    max_tokens: int
    system: str  # "": no system message of our own
    document: str = ""  # in front of the first message, in its turn; "": none


@dataclass(slots=True)
class AnswerFigures:
    """How one answer went."""

    prompt_tokens: int
    pace: Pace  # from the question
    reused_tokens: int = 0  # of the prompt, those that were not computed for this answer
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class Computed:
    """Ids, and the text that they stand for: what a prompt can begin with."""

    ids: tuple[int, ...]  # of the last turn: prompt and answer, without the token that ended it
    text: str  # the rendered prompt, and the answer behind it


NOTHING = Computed((), "")


@dataclass(frozen=True, slots=True)
class ChatPrefix:
    """A baked prefix as a chat sees it: each first message stands behind it."""

    name: str
    opening: Computed


class Conversation:
    """Turns of one chat. The next prompt begins with the ids of the last where the text is the same, so that the engine
    computes only what is new: tokenising an answer again need not give the tokens that the model chose."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        engine: ChatEngine,
        context: int,
        settings: ChatSettings,
        prefix: ChatPrefix | None = None,
        kv_preset: str = "exact",
    ) -> None:
        """`context`: tokens that the engine holds, prompt and answer together. The settings are those of the prefix.
        `kv_preset`: words for it, and for the policy where one raises pages."""
        self._tokenizer, self._template, self._engine = tokenizer, template, engine
        self.context, self.kv_preset = context, kv_preset
        self.settings = settings  # of the answers to come
        self.messages: list[Message] = []  # without the system message of the settings
        self.figures: AnswerFigures | None = None  # of the last answer
        self._prefix = prefix
        self._computed = NOTHING
        self._earlier: list[Computed] = []  # as it was in front of each turn that was said here
        self._zones: tuple[str, bytes] = ("", b"")  # of the document: what stands up to its end, and the pages of that

    @property
    def prefix_name(self) -> str | None:
        """Of the baked prefix that each first message stands behind."""
        return None if self._prefix is None else self._prefix.name

    def check_length(self, text_bytes: int) -> None:
        """RequestError where a text of so many bytes fits in no chat of this context, however it is cut into tokens."""
        self._tokenizer.check_length(text_bytes, self.context)

    def clear(self) -> None:
        """Forgets all turns."""
        self.replace_messages([])

    def replace_messages(self, messages: list[Message]) -> None:
        """Goes on from another history."""
        self.messages, self._computed = messages, NOTHING
        self._earlier = []

    def undo(self) -> None:
        """Takes the last question back, and its answer. RequestError where there is none."""
        places = [place for place, message in enumerate(self.messages) if message["role"] == "user"]
        if not places:
            raise RequestError("nobody has asked anything yet, so there is nothing to take back")
        self.messages = self.messages[: places[-1]]
        # Of a chat that was loaded no ids are known.
        self._computed = self._earlier.pop() if self._earlier else NOTHING

    def used_tokens(self) -> int:
        """Tokens of the context that the turns so far take."""
        return len(self._prompt(self.messages)[1]) if self.messages else 0

    def ask(self, text: str) -> Generator[str, None, None]:
        """The answer to `text`, piece by piece. Leaving early ends the answer; what was said stays in the chat.

        RequestError where the chat no longer fits in the context; nothing has changed then.
        """
        content = prompt_text(text, "the message")
        if self.settings.document and not self.messages:
            content = with_document(self.settings.document, content)
        message = {"role": "user", "content": content}
        chat, ids = self._prompt([*self.messages, message])
        if (prefix := self._prefix) is not None and not self.messages and not chat.text.startswith(prefix.opening.text):
            raise RequestError(
                f"this chat does not begin with the prefix {prefix.name}: this chat template writes it otherwise than when it "
                f"was baked. Use the template as it was, or bake it again: {BAKE_COMMAND}"
            )
        if len(ids) >= self.context:
            raise RequestError(
                f"this chat has {len(ids):,} tokens, the context {self.context:,}, and an answer needs room. "
                f"/clear it, or start with a larger --ctx-size or --kv-budget"
            )
        max_tokens = min(self.settings.max_tokens, self.context - len(ids))
        cuts = self._cuts(message, ids)
        self.figures = figures = AnswerFigures(len(ids), Pace(time.perf_counter()))
        return self._answer(message, chat, ids, cuts, max_tokens, figures)

    def _answer(
        self, message: Message, chat: RenderedChat, ids: list[int], cuts: list[int], max_tokens: int, figures: AnswerFigures
    ) -> Generator[str, None, None]:
        stop_ids = self._tokenizer.eos_ids
        stream = self._tokenizer.stream()
        said: list[str] = []
        answer_ids: list[int] = []
        zones = self._document_zones(chat)
        events = self._engine.generate(ids, self.settings.sampling, max_tokens, stop_ids, cuts, zones=zones)
        try:
            for event in events:
                figures.finish_reason = event.finish_reason
                if event.token_id is not None:
                    figures.pace.count(time.perf_counter())
                    if event.token_id not in stop_ids:
                        answer_ids.append(event.token_id)
                        said.append(stream.push(event.token_id))
                        if said[-1]:
                            yield said[-1]
            said.append(stream.finish())
            if said[-1]:
                yield said[-1]
        finally:
            # Also where Ctrl-C or an error of the engine ends it: what the user has read belongs to the chat.
            with deferred_interrupts():
                events.close()  # cancels the request where it has not ended
                figures.reused_tokens = events.reused_tokens
                if answer_ids or figures.finish_reason in ("stop", "length"):
                    answer = self._tokenizer.decode(answer_ids)
                    self.messages += [message, {"role": "assistant", "content": answer}]
                    self._earlier.append(self._computed)
                    self._computed = Computed((*ids, *answer_ids), chat.text + answer)

    def _cuts(self, message: Message, ids: list[int]) -> list[int]:
        """Where turns end: behind each token that ends an answer, which templates write behind every turn. Where the first
        question begins as well: what the settings put in front of it may be in its turn."""
        cuts = [place + 1 for place, token in enumerate(ids) if token in self._tokenizer.eos_ids]
        if not self.messages and self._prefix is None and (self.settings.system or self.settings.document):
            other = with_document(self.settings.document, "?") if self.settings.document else "?"
            others = self._prompt([message | {"content": other}])[1]
            alike = next((i for i, (a, b) in enumerate(zip(ids, others, strict=False)) if a != b), min(len(ids), len(others)))
            cuts.append(alike)
        return cuts

    def kv_bytes(self) -> ZoneBytes:
        """What the pages of the chat take."""
        return self._engine.kv_bytes()

    def _document_zones(self, chat: RenderedChat) -> bytes:
        """Zones of the pages up to the end of the document, where the chat begins with one: the same in every turn. b"" where
        it is baked: its pages are neither raised nor demoted."""
        document = self.settings.document
        begin = chat.text.find(document) if document and self._prefix is None else -1
        if begin < 0:
            return b""
        until = chat.text[: begin + len(document)]
        if self._zones[0] != until:
            from edge.anchors.text_zones import text_zones

            self._zones = until, text_zones(document, self._tokenizer.encode_chat_located(chat), begin)
        return self._zones[1]

    def _prompt(self, messages: list[Message]) -> tuple[RenderedChat, list[int]]:
        """The rendered chat and its ids; those of the last turn, or of the prefix, stand in front where the text begins with
        theirs."""
        system = self.settings.system
        opening = [{"role": "system", "content": prompt_text(system, "the system message")}] if system else []
        self.check_length(sum(len(message["content"].encode()) for message in opening + messages))
        chat = render_chat(self._template, opening + messages)
        text = chat.text
        for done in (self._computed, NOTHING if self._prefix is None else self._prefix.opening):
            if done.ids and text.startswith(done.text) and len(text) > len(done.text):
                return chat, [*done.ids, *self._tokenizer.encode_chat(chat, start=len(done.text))]
        return chat, self._tokenizer.encode_chat(chat)
