"""What a load asks of KV memory, and what fits into a budget. Owns: KvChoice, the words of a refusal. Needs: pages, presets,
config. Never: allocates, other memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edge.config import AUTO, InferenceConfig
from edge.errors import BudgetError, RequestError
from edge.pages.budget import plan_pool
from edge.pages.fit import PoolSize, cut_pool, longest_context, pool_holds, pressed_bytes
from edge.pages.geometry import GroupPages, own_tokens, page_groups
from edge.policies import BY_ATTENTION, RAISED_SHARES, PolicyName, peak_share
from edge.presets import PRESETS, PresetName
from edge.units import human_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge.baked.prefix import BakedPrefix
    from edge.package import Package
    from edge.spec import ModelSpec

_WHOLE = 1_000_000  # bytes: budgets that are proposed are whole megabytes


@dataclass(frozen=True, slots=True)
class KvChoice:
    """The preset, the bytes of all KV memory where the user gives them, and what need not lie in it."""

    preset: PresetName
    budget_bytes: int | None = None  # None: what the load needs
    prefix_tokens: int = 0  # of each sequence, those at its front whose pages are baked
    policy: PolicyName = "uniform"
    lowest: PresetName = "exact"  # to which pages may be demoted, where it has fewer bits than the preset

    @property
    def raises(self) -> bool:
        """Whether the policy may keep pages above the preset: above `exact` is nothing."""
        return RAISED_SHARES[self.policy] > 0 and PRESETS[self.preset].seals

    @property
    def words(self) -> str:
        """The preset, and the policy where it raises pages."""
        return f"{self.preset}, policy {self.policy}" if self.raises else self.preset


def choose_kv(
    package: Package,
    preset: PresetName | None,
    budget_bytes: int | None,
    policy: PolicyName | None = None,
    prefix: BakedPrefix | None = None,
) -> KvChoice:
    """What the command line asks for; without a preset that of the prefix, where there is one. RequestError where the engine
    lacks the preset or has no prefixes, or the preset seals no page that the policy could raise; PackageError where the prefix
    is not for it."""
    from edge.runnable import check_asked, choose_preset

    config = InferenceConfig.load()
    if prefix is not None:
        prefix.check_engine(package.manifest, preset)
        preset = prefix.header.engine.preset
    chosen = choose_preset(package, AUTO if preset is None else preset, config)
    check_asked(package.manifest, str(package.path), preset=chosen, prefixes=prefix is not None, forced=package.forced)
    check_policy(policy, chosen)
    return KvChoice(
        chosen,
        budget_bytes,
        0 if prefix is None else prefix.header.tokens,
        policy or config.kv_policy,
        lowest_preset(package, chosen, config),
    )


def check_policy(asked: PolicyName | None, preset: PresetName) -> None:
    """RequestError where a policy that raises pages is asked for, and the preset seals none."""
    if asked is not None and RAISED_SHARES[asked] > 0 and not PRESETS[preset].seals:
        names = ", ".join(name for name in PRESETS if PRESETS[name].seals)
        raise RequestError(
            f"--kv-policy {asked}: the preset {preset} seals no page, so none can be raised. Ask for one that seals them "
            f"(--kv-preset {names}), or leave it out"
        )


def lowest_preset(package: Package, preset: PresetName, config: InferenceConfig) -> PresetName:
    """To which pages may be demoted: the smallest preset that the package offers, or no other where answers are to be the same
    whatever else runs."""
    if config.deterministic:
        return preset
    return next(name for name in reversed(PRESETS) if name in (preset, *package.manifest.capabilities.presets))


def kv_groups(spec: ModelSpec, kv: KvChoice) -> tuple[GroupPages, ...]:
    """The pages of each layer group."""
    return page_groups(spec, PRESETS[kv.preset], PRESETS[kv.lowest], peak_share(kv.policy))


def kv_pool(spec: ModelSpec, kv: KvChoice, context: int, sequences: int, config: InferenceConfig) -> PoolSize:
    """The pool for such a load: what the context needs, at most the budget."""
    groups = kv_groups(spec, kv)
    needed = plan_pool(groups, own_tokens(context, kv.prefix_tokens), sequences, config)
    if kv.budget_bytes is None or needed.pool_bytes <= kv.budget_bytes:
        return needed
    return cut_pool(groups, kv.budget_bytes, config.slab_bytes, config.chunk_tokens)


def longest_in_budget(spec: ModelSpec, kv: KvChoice, sequences: int, limit: int, config: InferenceConfig) -> int:
    """The largest context up to `limit` that the budget holds; `limit` where there is none. BudgetError where not one page
    fits."""
    if kv.budget_bytes is None:
        return limit
    groups = kv_groups(spec, kv)
    size = cut_pool(groups, kv.budget_bytes, config.slab_bytes, config.chunk_tokens)
    longest = longest_context(
        lambda tokens: pool_holds(groups, size, own_tokens(tokens, kv.prefix_tokens), sequences, config.chunk_tokens), limit
    )
    if longest is None:
        least = budget_for(groups, own_tokens(1, kv.prefix_tokens), sequences, config)
        raise BudgetError(
            f"--kv-budget {human_bytes(kv.budget_bytes)}: {sequences} sequences of {spec.name} need {human_bytes(least)} for "
            "their first pages. Give it at least that, or ask for fewer sequences"
        )
    return longest


def most_in_budget(spec: ModelSpec, kv: KvChoice, limit: int, config: InferenceConfig, kept_pages: int = 0) -> int:
    """`longest_in_budget` of one sequence whose pages may be demoted on the way, but for `kept_pages` of them."""
    longest = longest_in_budget(spec, kv, 1, limit, config)
    groups = kv_groups(spec, kv)
    if longest == limit or kv.budget_bytes is None or not any(group.demotes for group in groups):
        return longest
    size, chunk = cut_pool(groups, kv.budget_bytes, config.slab_bytes, config.chunk_tokens), config.chunk_tokens
    pressed = longest_context(
        lambda tokens: pressed_bytes(groups, size, own_tokens(tokens, kv.prefix_tokens), kept_pages, chunk) <= size.pool_bytes,
        limit,
    )
    return max(longest, pressed or 0)


def budget_for(groups: tuple[GroupPages, ...], context: int, sequences: int, config: InferenceConfig) -> int:
    """A budget, in whole megabytes, that holds `sequences` sequences of up to `context` tokens of their own."""
    wanted = plan_pool(groups, context, sequences, config).pool_bytes
    while True:
        wanted = -(-wanted // _WHOLE) * _WHOLE
        size = cut_pool(groups, wanted, config.slab_bytes, config.chunk_tokens)  # with slabs that suit what it could hold
        if pool_holds(groups, size, context, sequences, config.chunk_tokens):
            return wanted
        wanted += max(_WHOLE, wanted // 100)


def check_kv_budget(
    spec: ModelSpec,
    kv: KvChoice,
    offered: Sequence[str],
    *,
    what: str,
    context: int,
    sequences: int,
    limit: int,
    config: InferenceConfig,
    kept_pages: int = 0,
) -> None:
    """BudgetError where the budget does not hold `what`, which needs a context of so many tokens: with what it holds, and the
    preset or the budget that would do. `offered` are the presets of the engine, `limit` is the largest context it takes. One
    sequence is held, too, where demoting all but `kept_pages` of its pages does it."""
    longest = longest_in_budget(spec, kv, sequences, limit, config)
    if context <= longest:
        return
    most = most_in_budget(spec, kv, limit, config, kept_pages) if sequences == 1 else longest
    if context <= most:
        return
    assert kv.budget_bytes is not None
    budget, shared = human_bytes(kv.budget_bytes), kv.prefix_tokens
    names = [name for name in PRESETS if name in offered]
    smaller = [name for name in names if name not in names[: names.index(kv.preset) + 1]]
    if kv.prefix_tokens:  # what was baked with one preset is not read with another
        smaller = []
    held = {name: longest_in_budget(spec, replace(kv, preset=name), sequences, limit, config) for name in smaller}
    ways = [f"--kv-preset {name}" for name in smaller if held[name] >= context][:1]
    if (
        kv.policy in BY_ATTENTION
        and longest_in_budget(spec, replace(kv, policy="uniform"), sequences, limit, config) >= context
    ):
        ways.insert(0, "--kv-policy uniform")  # no prompt stands one step up
    names = [kv.preset, *smaller[-1:]] if not ways else [kv.preset]
    own = own_tokens(context, kv.prefix_tokens)
    for name in names:
        needed = budget_for(kv_groups(spec, replace(kv, preset=name)), own, sequences, config) // _WHOLE
        ways.append(f"--kv-budget {needed}MB" + (f" --kv-preset {name}" if name != kv.preset else ""))
    # The pages of a prefix lie in its file.
    needs = f"a context of {context:,} tokens" if not shared else f"{context - shared:,} tokens behind its prefix"
    held_here, pressed = (max(0, tokens - shared) for tokens in (longest, most))
    raise BudgetError(
        f"{what} needs {needs}, --kv-budget {budget} holds {held_here:,} at the preset {kv.preset}"
        f"{f', {pressed:,} with pages demoted' if pressed > held_here else ''}. "
        f"What would hold it: {', or '.join(ways)}"
    )


def answer_cut(
    spec: ModelSpec, kv: KvChoice, prompt_tokens: int, max_tokens: int, held: int, config: InferenceConfig, limit: int
) -> str | None:
    """What to say where the budget holds the prompt, and less than all of its answer; None where it holds both. `held` is the
    context that it holds (`most_in_budget`), `limit` the largest of the engine."""
    wanted = min(prompt_tokens + max_tokens - 1, limit)  # the last token of an answer is never computed
    if held >= wanted:
        return None
    assert kv.budget_bytes is not None, "without a budget all fits"
    needed = budget_for(kv_groups(spec, kv), own_tokens(wanted, kv.prefix_tokens), 1, config) // _WHOLE
    return (
        f"--kv-budget {human_bytes(kv.budget_bytes)} has room for {held - prompt_tokens + 1:,} tokens of the answer, "
        f"--max-tokens is {max_tokens:,}. Room for all: --kv-budget {needed}MB"
    )
