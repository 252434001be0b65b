"""How large a pool must be, and what fits into one. Owns: PoolSize, the choice of slabs. Needs: geometry. Never: allocates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from edge.contract import OFFSET_MASK, OFFSET_UNIT, PAGE_TOKENS, SEAL_TOKENS
from edge.errors import BudgetError
from edge.pages.geometry import (
    BORDER_PAGES,
    ExtentKind,
    GroupPages,
    PageCount,
    bytes_of,
    extents_of,
    most_raised,
    pages_for,
    peak_counts,
    raised_extents,
)
from edge.spec import MAX_CONTEXT
from edge.units import human_bytes

LARGEST_POOL = (OFFSET_MASK + 1) * OFFSET_UNIT  # bytes that a page-table word can address: 64 GiB

# A pool of few slabs wastes much: the last slab of each size is half empty on average.
_SLABS_AT_LEAST = 32
_SLABS_TRIED = 16  # multiples of each extent's size
_EXTENTS_AT_LEAST = 4  # in a slab, of the largest sealed ones
PRESSED_SLABS = 2  # beside what pages take while they are demoted: one that is spare, one that is half moved


@dataclass(frozen=True, slots=True)
class PoolSize:
    """A pool as it is allocated: `pool_bytes` is a multiple of `slab_bytes`."""

    pool_bytes: int
    slab_bytes: int


def slabs_for(extents: Counter[ExtentKind], slab_bytes: int) -> int:
    """Slabs that hold these extents, and always will when none is ever given back: a slab is taken for extents of one size."""
    by_size: Counter[int] = Counter()
    for kind, count in extents.items():
        by_size[kind.bytes] += count
    return sum(-(-count // (slab_bytes // size)) for size, count in by_size.items())


def peak_extents(
    groups: tuple[GroupPages, ...], context: int, sequences: int, chunk_tokens: int = SEAL_TOKENS
) -> Counter[ExtentKind]:
    """The most extents of each kind that `sequences` sequences of up to `context` tokens hold at once, those that a step writes
    while it seals counted beside those that it frees, and those of pages that a policy raises.

    A size gets a new slab only while all its slabs are full, so it never holds more than ceil(peak / extents a slab) of them,
    in whatever order pages come and go; slabs for the peaks of all kinds are therefore enough.
    """
    peaks = peak_counts(groups, context, chunk_tokens)
    extents = extents_of(groups, tuple(PageCount(sequences * peak.open, sequences * peak.sealed) for peak in peaks))
    for group, peak in zip(groups, peaks, strict=True):
        extents += raised_extents(group, sequences * most_raised(group, pages_for(context), peak.sealed))
    return extents


def peak_sizes(groups: tuple[GroupPages, ...], context: int, chunk_tokens: int = SEAL_TOKENS) -> Counter[int]:
    """`peak_extents` of one sequence by extent bytes."""
    sizes: Counter[int] = Counter()
    for kind, count in peak_extents(groups, context, 1, chunk_tokens).items():
        sizes[kind.bytes] += count
    return sizes


def slab_bytes_for(extents: Counter[ExtentKind], slab_bytes: int) -> int:
    """The slab size for a pool of these extents: of `slab_sizes` the one whose slabs take the fewest bytes, the largest
    first."""
    return min(slab_sizes(extents, slab_bytes), key=lambda slab: (slabs_for(extents, slab) * slab, -slab))


def slab_sizes(extents: Counter[ExtentKind], slab_bytes: int) -> set[int]:
    """Sizes that slabs of a pool of these extents may have: `slab_bytes` at most (unless an extent is larger), less for a small
    pool, and down to half of that."""
    sizes = {kind.bytes for kind in extents}
    most = max(max(sizes), min(slab_bytes, bytes_of(extents) // _SLABS_AT_LEAST // OFFSET_UNIT * OFFSET_UNIT))
    least = max(max(sizes), most // 2)
    multiples = (range(most // size * size, least - 1, -size)[:_SLABS_TRIED] for size in sizes)
    return {most}.union(*multiples)


def fit_pool(
    groups: tuple[GroupPages, ...], context: int, sequences: int, slab_bytes: int, chunk_tokens: int = SEAL_TOKENS
) -> PoolSize:
    """A pool that never refuses `sequences` sequences of up to `context` tokens, cut into slabs of about `slab_bytes`."""
    extents = peak_extents(groups, context, sequences, chunk_tokens)
    slab = slab_bytes_for(extents, slab_bytes)
    return _checked(PoolSize(slabs_for(extents, slab) * slab, slab))


@cache
def cut_pool(groups: tuple[GroupPages, ...], pool_bytes: int, slab_bytes: int, chunk_tokens: int = SEAL_TOKENS) -> PoolSize:
    """A pool of at most `pool_bytes`, cut into slabs of about `slab_bytes` that suit one sequence as long as it can hold.
    BudgetError where not one page of each layer group fits."""
    least = peak_extents(groups, 1, 1)
    if pool_bytes < (needed := slabs_for(least, slab := slab_bytes_for(least, slab_bytes)) * slab):
        raise BudgetError(
            f"KV budget of {human_bytes(pool_bytes)}: one page of each layer group needs {human_bytes(needed)}. "
            f"Give it at least that: --kv-budget {-(-needed // 1_000_000)}MB"
        )
    if pool_bytes > LARGEST_POOL:
        raise BudgetError(
            f"KV budget of {human_bytes(pool_bytes)}: a page table reaches {human_bytes(LARGEST_POOL)}. "
            f"Give it at most that: --kv-budget {LARGEST_POOL // 1_000_000_000}GB"
        )
    at = cache(lambda tokens: peak_extents(groups, tokens, 1, chunk_tokens))
    limit = longest_context(lambda tokens: bytes_of(at(tokens)) <= pool_bytes, MAX_CONTEXT) or 1

    def held(slab: int) -> int:
        slabs = pool_bytes // slab
        return longest_context(lambda tokens: slabs_for(at(tokens), slab) <= slabs, limit) or 0

    # The smallest slabs are for a pool of little more than a page.
    slab = max(slab_sizes(at(limit), slab_bytes) | slab_sizes(least, slab_bytes), key=lambda slab: (held(slab), slab))
    return PoolSize(pool_bytes // slab * slab, slab)


def pool_holds(
    groups: tuple[GroupPages, ...], size: PoolSize, context: int, sequences: int = 1, chunk_tokens: int = SEAL_TOKENS
) -> bool:
    """Whether a pool never refuses `sequences` sequences of up to `context` tokens."""
    return bytes_needed(groups, size, context, sequences, chunk_tokens) <= size.pool_bytes


def bytes_needed(
    groups: tuple[GroupPages, ...], size: PoolSize, context: int, sequences: int = 1, chunk_tokens: int = SEAL_TOKENS
) -> int:
    """Bytes of the slabs, of the size that `size` has, that such a load takes."""
    return slabs_for(peak_extents(groups, context, sequences, chunk_tokens), size.slab_bytes) * size.slab_bytes


def pressed_bytes(
    groups: tuple[GroupPages, ...], size: PoolSize, context: int, kept_pages: int = 0, chunk_tokens: int = SEAL_TOKENS
) -> int:
    """`bytes_needed` of one sequence whose sealed pages are demoted as far as their levels go while it grows, but for
    `kept_pages` that never are. What was just sealed is not demoted yet.

    A slab of few extents whose end holds a smaller one is not free when they are: nothing is gained for sure then.
    """
    moved = [level for group in groups for level in group.levels[group.base - (group.raised_share > 0) :]]
    kinds = {kind.bytes for level in moved for kind in (level.key, level.value)}
    largest, smallest = max(kinds), min(kinds)
    if size.slab_bytes // largest < _EXTENTS_AT_LEAST and size.slab_bytes % largest >= smallest:
        return bytes_needed(groups, size, context, 1, chunk_tokens)
    extents: Counter[ExtentKind] = Counter()
    for group, peak in zip(groups, peak_counts(groups, context, chunk_tokens), strict=True):
        kept = min(peak.sealed, kept_pages + BORDER_PAGES)
        extents += extents_of((group,), (PageCount(peak.open, kept),))
        extents += raised_extents(group, most_raised(group, pages_for(context), kept))
        lowest = group.levels[-1]
        extents += Counter({lowest.key: peak.sealed - kept}) + Counter({lowest.value: peak.sealed - kept})
    return (slabs_for(extents, size.slab_bytes) + PRESSED_SLABS) * size.slab_bytes


def longest_context(fits: Callable[[int], bool], limit: int) -> int | None:
    """The largest context up to `limit`, in whole pages or `limit` itself, that `fits`; None: not even one page. By halves:
    what fits does not grow with the context."""
    if fits(limit):
        return limit
    low, high = 0, -(-limit // PAGE_TOKENS)  # pages: low fits (or is nothing), high does not
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle * PAGE_TOKENS):
            low = middle
        else:
            high = middle
    return low * PAGE_TOKENS or None


def _checked(size: PoolSize) -> PoolSize:
    if size.pool_bytes > LARGEST_POOL:
        gib = size.pool_bytes / (1 << 30)
        raise BudgetError(
            f"pool: {gib:.1f} GiB, a page table reaches {LARGEST_POOL >> 30} GiB. Use less context or fewer sequences"
        )
    return size
