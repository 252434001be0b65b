"""How large pages are and how many a sequence holds. Owns: extents of layer groups, their levels, when pages are sealed and
freed. Needs: contract, presets, spec. Never: pools, state.

A query at position t reads pages that end at or before 128 * (t // 128 - 1) sealed, but for the first one, and later pages in
fp16. So pages are sealed by the first step at or behind a border, which writes them anew; where they stood it puts the pages
that it adds, since every layer moves before it appends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

from edge.contract import PAGE_TOKENS, SEAL_TOKENS, can_hold, extent_bytes
from edge.presets import PRESETS, SEALED_FORMS, Preset
from edge.spec import ModelSpec

BORDER_PAGES = SEAL_TOKENS // PAGE_TOKENS  # between two seal borders


@dataclass(frozen=True, slots=True)
class ExtentKind:
    """What the pool hands out: bytes of one format."""

    page_format: str  # contract.PAGE_FORMATS
    bytes: int  # a multiple of OFFSET_UNIT


@dataclass(frozen=True, slots=True)
class PageKind:
    """A page of a layer group in one form: an extent for K and one for V."""

    key: ExtentKind
    value: ExtentKind

    @property
    def bytes(self) -> int:
        return self.key.bytes + self.value.bytes


@dataclass(frozen=True, slots=True)
class GroupPages:
    """Pages of one layer group. Where `sealed` is `open` nothing is sealed; otherwise K and V both change their form.

    A page that is sealed stands at one of `levels`, which begin with `open`: a page that keeps its form. Page moves lead from
    `open` to any of them and from each to the next.
    """

    window: int  # a query at t sees (t - window, t]; 0: all
    open: PageKind  # as written: fp16
    sealed: PageKind  # the preset's
    levels: tuple[PageKind, ...] = ()  # from the most to the least exact, `sealed` among them; (): no other
    raised_share: float = 0.0  # of a sequence's pages, those that a policy may seal one level above `sealed`

    def __post_init__(self) -> None:
        if not self.levels:
            object.__setattr__(self, "levels", (self.open, self.sealed) if self.seals else (self.open,))
        assert self.levels[0] == self.open and self.sealed in self.levels

    @property
    def seals(self) -> bool:
        return self.sealed != self.open

    @property
    def demotes(self) -> bool:
        """Whether pages at the preset's level can be demoted."""
        return self.sealed != self.levels[-1]

    @property
    def base(self) -> int:
        """The level of `sealed`."""
        return self.levels.index(self.sealed)


class PageCount(NamedTuple):
    """Pages of one layer group by form. Where nothing is sealed all are open."""

    open: int
    sealed: int


def page_groups(
    spec: ModelSpec, preset: Preset, lowest: Preset = PRESETS["exact"], raised_share: float = 0.0
) -> tuple[GroupPages, ...]:
    """The pages of each layer group, in the order of `spec.groups`, with levels down to the preset or to `lowest`, whichever is
    less exact."""
    forms = [("fp16", "fp16")]
    if preset.seals:
        forms += [
            form for form in SEALED_FORMS if can_hold(False, form[0], spec.head_dim) and can_hold(True, form[1], spec.head_dim)
        ]
        del forms[1 + max(forms.index((each.key_format, each.value_format)) for each in (preset, lowest)) :]
    groups = []
    for layers, window in zip(spec.groups, spec.group_windows, strict=True):
        levels = tuple(page_kind(spec, len(layers), *form) for form in forms)
        sealed = page_kind(spec, len(layers), preset.key_format, preset.value_format)
        groups.append(GroupPages(window, levels[0], sealed, levels, raised_share if preset.seals else 0.0))
    return tuple(groups)


def page_kind(spec: ModelSpec, layers: int, key_format: str, value_format: str) -> PageKind:
    """A page of a group of so many layers in these formats."""
    key, value = (
        ExtentKind(name, extent_bytes(is_value, name, layers, spec.num_kv_heads, spec.head_dim))
        for is_value, name in ((False, key_format), (True, value_format))
    )
    return PageKind(key, value)


def sealed_bits(spec: ModelSpec, preset: Preset) -> float:
    """Bits of an element of a sealed page, K and V on average, scales and minima counted."""
    layers = len(spec.layers)
    page = page_kind(spec, layers, preset.key_format, preset.value_format)
    return 8 * page.bytes / (2 * layers * spec.num_kv_heads * spec.head_dim * PAGE_TOKENS)


def first_page(window: int, position: int) -> int:
    """The first page that a query at `position` or later still sees, in a group with this window."""
    return max(0, position - window + 1) // PAGE_TOKENS if window else 0


def pages_for(tokens: int) -> int:
    """Pages that hold the positions 0 .. tokens - 1."""
    return -(-tokens // PAGE_TOKENS)


def own_tokens(context: int, shared: int) -> int:
    """The tokens of a sequence by itself that takes, in each group and form, at least the pages that one of `context` tokens
    takes beside those of its first `shared` tokens, a multiple of PAGE_TOKENS, which somebody else holds.

    Pages that stand open at the end of what is shared, at most two blocks of them, are sealed into pages of its own; a sequence
    by itself keeps its first page open.
    """
    return context if not shared else min(context, max(1, context - shared + 3 * SEAL_TOKENS))


def next_border(position: int) -> int:
    """The first seal border behind `position`."""
    return (position // SEAL_TOKENS + 1) * SEAL_TOKENS


def opened_extents(groups: tuple[GroupPages, ...], added: int, places: Sequence[int]) -> Counter[ExtentKind]:
    """Extents of the pages that a step adds to each layer group, less those that it puts where sealing leaves a place."""
    extents: Counter[ExtentKind] = Counter()
    for group, left in zip(groups, places, strict=True):
        if added > left:
            extents[group.open.key] += added - left
            extents[group.open.value] += added - left
    return extents


def sealed_end(position: int) -> int:
    """Pages before this one, but for the first, are read sealed by a query at `position`, where anything is sealed."""
    return max(0, position // SEAL_TOKENS - 1) * BORDER_PAGES


def span_count(first: int, end: int, sealed: int) -> PageCount:
    """Of the pages first .. end - 1: those before `sealed` but for page 0 are sealed, the others open."""
    closed = max(0, min(sealed, end) - max(first, 1))
    return PageCount(max(0, end - first) - closed, closed)


def step_count(window: int, start: int, end: int) -> PageCount:
    """Pages for which there is room while a step computes the positions start .. end - 1 (no border between them) of a sequence
    that seals: those that stood, those into which it seals, and of those that it adds the ones beyond what it seals."""
    first, stood = first_page(window, start), pages_for(start)
    before = span_count(first, stood, sealed_end(max(0, start - 1)))
    sealed = span_count(first, stood, sealed_end(start)).sealed
    return PageCount(before.open + max(0, pages_for(end) - stood - (sealed - before.sealed)), sealed)


def rest_count(window: int, length: int) -> PageCount:
    """Pages that stand between two steps, `length` tokens being computed, of a sequence that seals."""
    return span_count(first_page(window, length), pages_for(length), sealed_end(max(0, length - 1)))


def peak_count(group: GroupPages, tokens: int, chunk_tokens: int = SEAL_TOKENS) -> PageCount:
    """The most pages of each form that a sequence of up to `tokens` tokens holds at once in this group, when its chunks have at
    most `chunk_tokens` tokens and end at seal borders."""
    if not group.seals:
        everything = pages_for(tokens)
        return PageCount(min(everything, _window_pages(group.window, chunk_tokens)) if group.window else everything, 0)
    if group.window:
        return _sealing_peak(group.window, min(tokens, _repeats_from(group.window)), chunk_tokens)
    last = (tokens - 1) // SEAL_TOKENS
    # The third block has the first that seals; the fourth and every later one seal four; the last two may be cut short.
    blocks = {block for block in (0, 1, 2, 3, last - 1, last) if 0 <= block <= last}
    # In each the step at the border counts, where both forms stand, and the one that ends it.
    ends = {block: min(tokens, (block + 1) * SEAL_TOKENS) for block in blocks}
    return _most(0, tokens, chunk_tokens, [start for block in blocks for start in (block * SEAL_TOKENS, ends[block] - 1)])


def _sealing_peak(window: int, tokens: int, chunk_tokens: int) -> PageCount:
    first_cut = max(0, tokens - chunk_tokens)  # steps that begin before it have their whole length
    last = _most(window, tokens, chunk_tokens, list(range(first_cut, tokens)))
    if not first_cut:
        return last
    whole = _whole_steps(window, chunk_tokens)[first_cut - 1]
    return PageCount(max(whole.open, last.open), max(whole.sealed, last.sealed))


@lru_cache(maxsize=64)
def _whole_steps(window: int, chunk_tokens: int) -> list[PageCount]:
    """By position, up to where blocks repeat: the most pages of each form that steps beginning there or before need."""
    peaks: list[PageCount] = []
    most = PageCount(0, 0)
    for start in range(_repeats_from(window)):
        end = min(start + chunk_tokens, next_border(start))
        count = step_count(window, start, end)
        most = PageCount(max(most.open, count.open), max(most.sealed, count.sealed))
        peaks.append(most)
    return peaks


def _repeats_from(window: int) -> int:
    """Behind the window and two borders every block is like the one before."""
    return _round_up(window, SEAL_TOKENS) + 4 * SEAL_TOKENS


def _most(window: int, tokens: int, chunk_tokens: int, starts: list[int]) -> PageCount:
    """The most of each form over the longest steps that begin at `starts`."""
    ends = [min(tokens, start + chunk_tokens, next_border(start)) for start in starts]
    counts = [step_count(window, start, end) for start, end in zip(starts, ends, strict=True)]
    return PageCount(max(count.open for count in counts), max(count.sealed for count in counts))


@cache
def _window_pages(window: int, chunk_tokens: int) -> int:
    """`peak_count` of a text without end: windows and borders repeat, so one span between two borders shows the worst."""
    far = _round_up(window, SEAL_TOKENS)
    # While a chunk [start, end) runs, the pages that a query at `start` sees stand, and those up to `end`.
    return max(
        pages_for(min(start + chunk_tokens, far + SEAL_TOKENS)) - first_page(window, start)
        for start in range(far, far + SEAL_TOKENS)
    )


def peak_counts(groups: tuple[GroupPages, ...], tokens: int, chunk_tokens: int = SEAL_TOKENS) -> tuple[PageCount, ...]:
    """`peak_count` of each layer group."""
    return tuple(peak_count(group, tokens, chunk_tokens) for group in groups)


def extents_of(groups: tuple[GroupPages, ...], pages: tuple[PageCount, ...]) -> Counter[ExtentKind]:
    """The extents in so many pages of each layer group."""
    extents: Counter[ExtentKind] = Counter()
    for group, counts in zip(groups, pages, strict=True):
        for kind, count in ((group.open, counts.open), (group.sealed, counts.sealed)):
            if count:  # most steps decode inside a page and need none
                extents[kind.key] += count
                extents[kind.value] += count
    return extents


def extents_between(source: PageKind, target: PageKind) -> Counter[ExtentKind]:
    """The extents that a page takes anew on its way from one kind to another."""
    pairs = ((source.key, target.key), (source.value, target.value))
    return Counter(new for old, new in pairs if old.page_format != new.page_format)


def most_raised(group: GroupPages, pages: int, sealed: int) -> int:
    """Of `sealed` sealed pages of a sequence that has `pages` in all, those that a policy may have sealed one level higher."""
    return min(sealed, int(group.raised_share * pages))


def raised_extents(group: GroupPages, count: int) -> Counter[ExtentKind]:
    """What `count` pages one level above the preset's take beside those that they would take at the preset's."""
    if not count:
        return Counter()
    higher = extents_between(group.sealed, group.levels[group.base - 1])
    return Counter({kind: number * count for kind, number in higher.items()})


def table_bytes(groups: tuple[GroupPages, ...], max_pages: int) -> int:
    """Bytes of the page table of one sequence: a word of 4 bytes for K and one for V."""
    return len(groups) * max_pages * 2 * 4


def bytes_of(extents: Counter[ExtentKind]) -> int:
    return sum(kind.bytes * count for kind, count in extents.items())


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
