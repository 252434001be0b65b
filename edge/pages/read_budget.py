"""How many sealed pages a token of an answer reads. Owns: ReadBudget, Reading, when it widens. Needs: contract. Never: which
pages, engines.

An engine can tell of a sealed page, without reading it, about how much a query will give to it; it reads the best pages.
Nothing is thrown away: what one token leaves out, the next may read. The estimate proves nothing, so now and then a token reads
all and tells what the choice would have left out (after Quest, arXiv 2406.10774; its cost: `edge bench kv --read-budget`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from edge.contract import PAGE_TOKENS, SEAL_TOKENS

AUTO_TOKENS = 1024  # however short a text is: with 512 of 2,048 tokens needles were lost
AUTO_PARTS = 4  # of a long text one part in so many
LEAST_TIMES = 4  # a text is read whole where it has fewer times the budget
PROBE_EVERY = 64  # tokens
MOST_OMITTED = 0.02  # of the softmax: mean over layers, heads, and the last probes of this budget
PROBES_JUDGED = 4  # at most; older ones tell of another part of the answer
FAR_TIMES = 3  # MOST_OMITTED in one probe, whatever those before it were
_BLOCK_PAGES = SEAL_TOKENS // PAGE_TOKENS


@dataclass(frozen=True, slots=True)
class ReadAll:
    """Every token reads every page."""

    def __str__(self) -> str:
        return "all"


@dataclass(frozen=True, slots=True)
class ReadTokens:
    """A token reads the pages of so many tokens, beside the last 128 to 255."""

    tokens: int

    def __post_init__(self) -> None:
        if self.tokens < SEAL_TOKENS:
            raise ValueError(f"at least {SEAL_TOKENS} tokens are to be read, {self.tokens} are asked for")

    def of(self, length: int) -> int:
        return self.tokens

    def __str__(self) -> str:
        return str(self.tokens)


@dataclass(frozen=True, slots=True)
class ReadAuto:
    """A quarter of the text, and AUTO_TOKENS at least."""

    def of(self, length: int) -> int:
        return max(AUTO_TOKENS, length // AUTO_PARTS)

    def __str__(self) -> str:
        return "auto"


ReadBudget = ReadAll | ReadTokens | ReadAuto


def parse_read_budget(text: str) -> ReadBudget:
    """`all`, `auto` or a number of tokens. ValueError with what would do."""
    if text in ("all", "auto"):
        return ReadAll() if text == "all" else ReadAuto()
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{text!r} is not all, auto or a number of tokens")
    return ReadTokens(int(text))


@dataclass(frozen=True, slots=True)
class Reading:
    """How far one answer has widened its budget. `wanted` says what the next token reads, `after` what was learnt of it."""

    budget: ReadBudget
    doublings: int = 0
    omitted: tuple[float, ...] = ()  # in the last probes since the budget last changed, PROBES_JUDGED at most
    since_probe: int = PROBE_EVERY  # tokens; the first one is a probe

    @property
    def may_read_fewer(self) -> bool:
        return not isinstance(self.budget, ReadAll)

    def wanted(self, length: int) -> int:
        """StepInput.read_pages of a token that makes the sequence `length` long: 0 reads all, n the best n, -n probes them."""
        if isinstance(self.budget, ReadAll):
            return 0
        least = self.budget.of(length)
        tokens = least << self.doublings
        # Beyond half of a text the choice costs about what it saves.
        if length < LEAST_TIMES * least or 2 * tokens > length:
            return 0
        # With the first page, which is always read, they fill blocks of attention.
        pages = max(1, tokens // SEAL_TOKENS) * _BLOCK_PAGES - 1
        return -pages if self.since_probe >= PROBE_EVERY else pages

    def after(self, read_pages: int, omitted: float) -> Reading:
        """When a token was read so; `omitted` of a probe is the share of the softmax that was left out, 0 to 1."""
        if read_pages == 0:
            return self
        if read_pages > 0:
            return replace(self, since_probe=self.since_probe + 1)
        judged = (*self.omitted, omitted)[-PROBES_JUDGED:]
        if omitted > FAR_TIMES * MOST_OMITTED or sum(judged) > MOST_OMITTED * len(judged):
            return Reading(self.budget, self.doublings + 1)  # and the next token probes that
        return replace(self, omitted=judged, since_probe=1)
