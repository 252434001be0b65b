"""One request from prompt to last token. Owns: Request, TokenEvent. Needs: sampling, pages. Never: decides."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from edge.errors import EdgeError
from edge.pace import Pace
from edge.pages.account import ZoneBytes
from edge.pages.prefix_cache import PrefixCache
from edge.pages.read_budget import ReadAll, Reading
from edge.pages.sequence import SequencePages
from edge.sampling import SamplingParams
from edge.watch import PromptWatch

FinishReason = Literal["stop", "length", "cancelled", "error"]


@dataclass(frozen=True, slots=True)
class TokenEvent:  # the runtime writes, everyone reads
    """A token, or the end, or both. With reason `stop` the token is the stop id itself and no part of the answer's text."""

    request_id: int
    token_id: int | None  # None: the request ended without one (cancelled, error)
    finish_reason: FinishReason | None  # None: it goes on
    logprob: float | None = None  # natural log; None where it was not asked for, or the probability is 0
    error: EdgeError | None = None  # with reason `error`


@dataclass(eq=False, slots=True)
class SequenceTokens:
    """Tokens of one sequence and the pages that hold their K and V."""

    owner: int  # its number among requests and sessions
    is_kept: bool  # of a session: pages stay when a request ends
    pages: SequencePages
    token_ids: list[int] = field(default_factory=list)  # known: prompt and answer; pages.length of them are computed
    reads: dict[int, int] = field(default_factory=dict)  # sealed pages read, where these were not all; positions ascending
    replays: bool = False  # what is computed again reads what it read at first: the way of deterministic mode

    def restart(self, tokens: list[int], prefix_cache: PrefixCache) -> None:
        """Makes `tokens` the known ones and keeps the pages of those at the front that are the same, less the last token,
        whose logits are wanted. Where pages are missing for that, or stand in another form than a query there would read, it
        goes on from an earlier point where all is there, or from a cut that the prefix cache has, at last from 0."""
        most = min(self.pages.length, len(tokens) - 1)
        same = next((i for i in range(most) if tokens[i] != self.token_ids[i]), most)
        self.pages.rewind(self.pages.rewind_point(same))
        if self.replays:  # pages that went are computed as they were, so that who shared the pool makes no difference
            most = min(len(self.token_ids), len(tokens) - 1)
            same = next((i for i in range(same, most) if tokens[i] != self.token_ids[i]), most)
        self.token_ids = tokens
        self._forget_reads(same if self.replays else self.pages.length)
        self.lengthen(prefix_cache)

    def give_up(self, prefix_cache: PrefixCache) -> None:
        """Frees its pages. Those of a file, which take no room, it begins with again: the pool may have none for them."""
        self.release()
        if (cut := prefix_cache.find_pinned(self.token_ids, len(self.token_ids) - 1)) is not None:
            self.pages.adopt(cut)

    def release(self) -> None:
        """Frees its pages."""
        self.pages.release()
        if not self.replays:
            self.reads.clear()

    def lengthen(self, prefix_cache: PrefixCache) -> bool:
        """Goes on from the longest cut of the tokens, less the last, where that is more than its own pages, and its pages stand
        at the levels at which this sequence seals; whether it is."""
        most = len(self.token_ids) - 1
        if self.replays:  # a cut is of who read all
            most = min(most, next(iter(self.reads), most))
        cut = prefix_cache.find(self.token_ids, most)
        if cut is None or cut.length <= self.pages.length or not self.pages.is_sealed_as_assigned(cut.words, cut.sealed):
            return False
        prefix_cache.use(self.token_ids, cut)
        self.release()
        self.pages.adopt(cut)
        return True

    def has_read_all(self, length: int) -> bool:
        """Whether K and V of the first `length` tokens are what reading all pages gives, so that others may begin with them."""
        return length <= next(iter(self.reads), length)

    def _forget_reads(self, length: int) -> None:
        self.reads = {position: read for position, read in self.reads.items() if position < length}


@dataclass(eq=False, slots=True)
class Request:  # the runtime writes, everyone reads
    """A request and how far it is."""

    id: int
    sequence: SequenceTokens
    prompt_tokens: int
    reused_tokens: int  # of the prompt, those whose pages were there when it was submitted, then when it began to run
    sampling: SamplingParams  # with the seed that is used
    max_tokens: int
    stop_ids: frozenset[int]
    cuts: tuple[int, ...]  # cut points: page borders at or before the ends of turns, ascending
    pace: Pace  # from its submission
    watch: PromptWatch  # of its prompt
    peak: Counter[int] = field(default_factory=Counter)  # by extent bytes, the most that it holds at once
    reading: Reading = field(default_factory=lambda: Reading(ReadAll()))  # what the next token of the answer reads
    token_ids: list[int] = field(default_factory=list)  # the answer so far, a stop id included
    finish_reason: FinishReason | None = None
    kv_bytes: ZoneBytes = field(default_factory=dict)  # when it ended
    has_begun: bool = False

    def begin(self) -> None:
        """It runs from now on, for the first time or again."""
        if not self.has_begun:
            self.has_begun, self.reused_tokens = True, self.sequence.pages.length

    def wanted_pages(self, start: int, end: int) -> int:
        """StepInput.read_pages of its tokens start .. end - 1."""
        if end < len(self.sequence.token_ids):  # computed again
            return self.sequence.reads.get(start, 0) if self.sequence.replays else 0
        return self.reading.wanted(end) if self.token_ids and end - start == 1 else 0  # the prompt reads all

    def alike_until(self) -> int:
        """Where the next step of the request ends at the latest: of what is computed again, a token that did not read all goes
        alone, and so does the first new one."""
        sequence, done, known = self.sequence, self.sequence.pages.length, len(self.sequence.token_ids)
        if not sequence.replays or not self.reading.may_read_fewer or known - done == 1:
            return known
        if done in sequence.reads:
            return done + 1
        return next((position for position in sequence.reads if position > done), known - bool(self.token_ids))

    def learn(self, length: int, read_pages: int, omitted: float) -> None:
        """A token that made its sequence `length` long was read so; `omitted` as in StepOutput."""
        if length == len(self.sequence.token_ids):  # one that is computed again has been learnt from
            self.reading = self.reading.after(read_pages, omitted)
        if read_pages > 0:
            self.sequence.reads[length - 1] = read_pages

    def accept(self, token: int, now: float) -> None:
        """One more token of the answer."""
        self.token_ids.append(token)
        self.sequence.token_ids.append(token)
        self.pace.count(now)
