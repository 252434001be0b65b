"""How large pages are and how many a sequence needs. Owns: arithmetic of extents, slabs and pools. Needs: contract, spec.
Never: state."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache

from edge.contract import OFFSET_MASK, OFFSET_UNIT, PAGE_FORMATS, PAGE_TOKENS, SEAL_TOKENS
from edge.errors import BudgetError, RequestError
from edge.spec import ModelSpec

LARGEST_POOL = (OFFSET_MASK + 1) * OFFSET_UNIT  # bytes that a page-table word can address: 64 GiB

# A pool of few slabs wastes much: the last slab of each size is half empty on average.
_SLABS_AT_LEAST = 32


@dataclass(frozen=True, slots=True)
class ExtentKind:
    """What the pool hands out: bytes of one format."""

    page_format: str  # contract.PAGE_FORMATS
    bytes: int  # a multiple of OFFSET_UNIT


@dataclass(frozen=True, slots=True)
class GroupPages:
    """Pages of one layer group: an extent for K and one for V."""

    window: int  # a query at t sees (t - window, t]; 0: all
    key: ExtentKind
    value: ExtentKind

    @property
    def page_bytes(self) -> int:
        return self.key.bytes + self.value.bytes

    def extent(self, is_value: bool) -> ExtentKind:
        return self.value if is_value else self.key


@dataclass(frozen=True, slots=True)
class PoolSize:
    """A pool as it is allocated: `pool_bytes` is a multiple of `slab_bytes`."""

    pool_bytes: int
    slab_bytes: int


def extent_bytes(spec: ModelSpec, group: int, page_format: str) -> int:
    """Bytes of the K, or equally of the V, of one page of layer group `group`: [layers][Hkv][32 tokens x D] values."""
    assert page_format in PAGE_FORMATS, page_format
    if page_format != "fp16":
        raise RequestError(f"KV pages in {page_format}: this version keeps fp16 only. Use the preset exact")
    values = len(spec.groups[group]) * spec.num_kv_heads * spec.head_dim * PAGE_TOKENS
    return _round_up(values * 2, OFFSET_UNIT)


def page_groups(spec: ModelSpec, key_format: str = "fp16", value_format: str = "fp16") -> tuple[GroupPages, ...]:
    """The extents of a page of each layer group, in the order of `spec.groups`."""
    return tuple(
        GroupPages(
            window=window,
            key=ExtentKind(key_format, extent_bytes(spec, group, key_format)),
            value=ExtentKind(value_format, extent_bytes(spec, group, value_format)),
        )
        for group, window in enumerate(spec.group_windows)
    )


def first_page(window: int, position: int) -> int:
    """The first page that a query at `position` or later still sees, in a group with this window."""
    return max(0, position - window + 1) // PAGE_TOKENS if window else 0


def pages_for(tokens: int) -> int:
    """Pages that hold the positions 0 .. tokens - 1."""
    return -(-tokens // PAGE_TOKENS)


def peak_pages(window: int, tokens: int, chunk_tokens: int = SEAL_TOKENS) -> int:
    """The most pages that a sequence of up to `tokens` tokens holds at once in a group with this window, when its chunks
    have at most `chunk_tokens` tokens and end at seal borders."""
    everything = pages_for(tokens)
    return min(everything, _window_pages(window, chunk_tokens)) if window else everything


@cache
def _window_pages(window: int, chunk_tokens: int) -> int:
    """`peak_pages` of a text without end: windows and borders repeat, so one span between two borders shows the worst."""
    far = _round_up(window, SEAL_TOKENS)
    # While a chunk [start, end) runs, the pages that a query at `start` sees stand, and those up to `end`.
    return max(
        pages_for(min(start + chunk_tokens, far + SEAL_TOKENS)) - first_page(window, start)
        for start in range(far, far + SEAL_TOKENS)
    )


def pages_needed(groups: tuple[GroupPages, ...], tokens: int, chunk_tokens: int = SEAL_TOKENS) -> tuple[int, ...]:
    """`peak_pages` of each layer group."""
    return tuple(peak_pages(group.window, tokens, chunk_tokens) for group in groups)


def extents_of(groups: tuple[GroupPages, ...], pages: tuple[int, ...]) -> Counter[ExtentKind]:
    """The extents in so many pages of each layer group."""
    extents: Counter[ExtentKind] = Counter()
    for group, count in zip(groups, pages, strict=True):
        if count:  # most steps decode inside a page and need none
            extents[group.key] += count
            extents[group.value] += count
    return extents


def slabs_for(extents: Counter[ExtentKind], slab_bytes: int) -> int:
    """Slabs that hold these extents, and always will when none is ever given back: a slab has extents of one size."""
    by_size: Counter[int] = Counter()
    for kind, count in extents.items():
        by_size[kind.bytes] += count
    return sum(-(-count // (slab_bytes // size)) for size, count in by_size.items())


def pool_bytes_for(spec: ModelSpec, context: int, sequences: int, slab_bytes: int, chunk_tokens: int = SEAL_TOKENS) -> int:
    """Bytes of a pool with slabs of `slab_bytes` that never refuses `sequences` sequences of up to `context` tokens.

    A size gets a new slab only while all its slabs are full, so it never holds more than ceil(peak / extents a slab) of them,
    in whatever order pages come and go; the sum over sizes is therefore enough.
    """
    groups = page_groups(spec)
    extents = extents_of(groups, tuple(sequences * pages for pages in pages_needed(groups, context, chunk_tokens)))
    return slabs_for(extents, slab_bytes) * slab_bytes


def slab_bytes_for(groups: tuple[GroupPages, ...], pool_bytes: int, slab_bytes: int) -> int:
    """The slab size for a pool of about `pool_bytes`: `slab_bytes` at most (unless an extent is larger), less for a small
    pool, and of the sizes down to half of that the one that leaves the smallest share of a slab unused, the largest first."""
    sizes = {kind.bytes for group in groups for kind in (group.key, group.value)}
    most = max(max(sizes), min(slab_bytes, pool_bytes // _SLABS_AT_LEAST))
    least = max(max(sizes), most // 2)
    unit = max(sizes)
    candidates = [most // OFFSET_UNIT * OFFSET_UNIT, *range(most // unit * unit, least - 1, -unit)]
    return min(candidates, key=lambda slab: (max(slab % size / slab for size in sizes), -slab))


def fit_pool(spec: ModelSpec, context: int, sequences: int, slab_bytes: int, chunk_tokens: int = SEAL_TOKENS) -> PoolSize:
    """A pool that never refuses `sequences` sequences of up to `context` tokens, cut into slabs of about `slab_bytes`."""
    groups = page_groups(spec)
    pages = pages_needed(groups, context, chunk_tokens)
    page_bytes = sequences * sum(group.page_bytes * count for group, count in zip(groups, pages, strict=True))
    slab = slab_bytes_for(groups, page_bytes, slab_bytes)
    return _checked(PoolSize(pool_bytes_for(spec, context, sequences, slab, chunk_tokens), slab))


def cut_pool(spec: ModelSpec, pool_bytes: int, slab_bytes: int) -> PoolSize:
    """A pool of at most `pool_bytes`, cut into slabs of about `slab_bytes`. BudgetError where not one page fits."""
    groups = page_groups(spec)
    slab = slab_bytes_for(groups, pool_bytes, slab_bytes)
    least = slabs_for(extents_of(groups, (1,) * len(groups)), slab) * slab
    if pool_bytes < least:
        raise BudgetError(f"pool: {pool_bytes} bytes; one page of {spec.name} needs {least}. Give the pool at least that")
    return _checked(PoolSize(pool_bytes // slab * slab, slab))


def _checked(size: PoolSize) -> PoolSize:
    if size.pool_bytes > LARGEST_POOL:
        gib = size.pool_bytes / (1 << 30)
        raise BudgetError(
            f"pool: {gib:.1f} GiB, a page table reaches {LARGEST_POOL >> 30} GiB. Use less context or fewer sequences"
        )
    return size


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
