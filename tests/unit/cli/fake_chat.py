"""An engine that knows its answers, and a chat with it: `python fake_chat.py TOKENIZER_FOLDER CONTEXT SECONDS_PER_TOKEN`."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from edge.cli.conversation import ChatSettings, Conversation
from edge.errors import EdgeError
from edge.pages.account import ZoneBytes
from edge.request import TokenEvent
from edge.sampling import SamplingParams
from edge.text.template import ChatTemplate
from edge.text.tokenizer import Tokenizer

END = 2  # <|im_end|> of the tiny vocabulary


@dataclass
class FakeEngine:
    """Answers with the next of `answers` (text, or ids), END behind it; an error is raised where one stands."""

    tokenizer: Tokenizer
    answers: list[str | list[int] | EdgeError]
    delay_s: float = 0.0
    prompts: list[list[int]] = field(default_factory=list)
    requests: list[tuple[SamplingParams, int]] = field(default_factory=list)
    cuts: list[list[int]] = field(default_factory=list)
    computed: list[int] = field(default_factory=list)  # of the last request
    zones: list[bytes] = field(default_factory=list)
    cancelled: int = 0

    def kv_bytes(self) -> ZoneBytes:
        return {"sink": {"fp16": 2_000_000}, "background": {"int8": 1_500_000, "int4": 500_000}}

    def generate(
        self,
        prompt_ids: list[int],
        sampling: SamplingParams,
        max_tokens: int,
        stop_ids: frozenset[int],
        cuts: list[int],
        *,
        zones: bytes,
    ) -> FakeEvents:
        self.prompts.append(list(prompt_ids))
        self.zones.append(zones)
        self.requests.append((sampling, max_tokens))
        self.cuts.append(list(cuts))
        reused = next(
            (i for i, (a, b) in enumerate(zip(prompt_ids, self.computed, strict=False)) if a != b), len(self.computed)
        )
        return FakeEvents(self._tokens(max_tokens, stop_ids), reused)

    def _tokens(self, max_tokens: int, stop_ids: frozenset[int]) -> Generator[TokenEvent, None, None]:
        answer = self.answers.pop(0)
        if isinstance(answer, EdgeError):
            raise answer
        ids = [*self.tokenizer.encode(answer, specials=False), END] if isinstance(answer, str) else answer
        self.computed = list(self.prompts[-1])
        try:
            for place, token in enumerate(ids, 1):
                time.sleep(self.delay_s)
                reason = "stop" if token in stop_ids else "length" if place == max_tokens else None
                yield TokenEvent(1, token, reason)
                if reason:
                    return
                self.computed.append(token)
        except GeneratorExit:
            self.cancelled += 1
            raise


@dataclass
class FakeEvents(Iterator[TokenEvent]):
    tokens: Generator[TokenEvent, None, None]
    reused_tokens: int

    def __next__(self) -> TokenEvent:
        return next(self.tokens)

    def close(self) -> None:
        self.tokens.close()


def open_conversation(folder: Path, engine: FakeEngine, context: int = 2048, **settings: object) -> Conversation:
    """A chat with `engine` in ChatML."""
    chosen = {"sampling": SamplingParams(), "max_tokens": 1000, "system": "", **settings}
    return Conversation(engine.tokenizer, ChatTemplate.open(folder, engine.tokenizer), engine, context, ChatSettings(**chosen))


def main() -> None:
    from edge.cli.chat_session import _editor, talk
    from edge.cli.main import EXIT_INTERRUPT

    folder = Path(sys.argv[1])
    tokenizer = Tokenizer.open(folder)
    answers: list[str | list[int] | EdgeError] = [f"answer {n} " + "and the world " * 200 for n in range(9)]
    conversation = open_conversation(folder, FakeEngine(tokenizer, answers, delay_s=float(sys.argv[3])), int(sys.argv[2]))
    try:
        talk(
            conversation,
            _editor(conversation.check_length),
            sys.stdout,
            sys.stderr,
            planned_bytes=120_000_000,
        )
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPT)


if __name__ == "__main__":
    main()
