"""From a package to a runtime inside the budget. Owns: the memory plan of a package, the check before a load. Needs: planner,
runtime. Never: text, terminals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from edge.config import AUTO, Auto, InferenceConfig
from edge.devices import load_device
from edge.errors import RequestError
from edge.kv_budget import KvChoice, check_kv_budget, kv_pool, longest_in_budget, most_in_budget
from edge.load import resolve_limits
from edge.monitors.memory import machine_memory
from edge.package import PLAN, Package
from edge.pages.geometry import sealed_bits
from edge.pages.read_budget import ReadAll, ReadBudget
from edge.planner import MemoryPlan, MemorySizes, check_budget, plan_memory
from edge.preset_plan import PresetPlan, preset_plans
from edge.presets import PRESETS, PresetName

if TYPE_CHECKING:
    from edge.baked.prefix import BakedPrefix
    from edge.executors.cpu_plan import CpuPlan
    from edge.manifest import Limits
    from edge.runtime import Runtime
    from edge.spec import ModelSpec
    from edge.target_plan import TargetPlan


# What looks for anchors in a text: its modules and the phrases of all languages. Measured: a chat with a document of 11 kB is
# 9.6 MB larger.
_ZONES_BYTES = 11_000_000

# What edits lines in a terminal (prompt-toolkit). Measured: a chat there is 11.6 MB larger than the same one in a pipe.
_TERMINAL_BYTES = 11_600_000


def engine_sizes(
    plan: CpuPlan,
    spec: ModelSpec,
    limits: Limits,
    config: InferenceConfig,
    kv: KvChoice,
    *,
    threads: int,
    host_bytes: int,
    baked_bytes: int = 0,
) -> MemorySizes:
    """Bytes of a CPU engine under `limits`, as functions of the context."""
    from edge.executors.native import workspace_bytes

    return MemorySizes(
        weights=plan.weight_bytes,
        pool=lambda context: kv_pool(spec, kv, context, limits.max_sequences, config).pool_bytes,
        workspace=lambda context: workspace_bytes(plan, spec, replace(limits, max_context=context), threads),
        host=host_bytes,
        baked=baked_bytes,
    )


def package_plan(
    package: Package,
    kv: KvChoice,
    *,
    context: int | None = None,
    sequences: int = 1,
    threads: int | None = None,
    with_text: bool = True,
    baked_bytes: int = 0,
    with_zones: bool = False,
    with_terminal: bool = False,
) -> MemoryPlan:
    """The memory table of a load of `package`, with prefixes of so many bytes. None: the configured context (beside a KV budget
    all that it holds), all processors. `with_zones`: anchors of a text are looked for; `with_terminal`: lines are edited.
    RequestError where the engine does not take such a load, BudgetError where the KV budget does not hold it."""
    config = InferenceConfig.load()
    engine = package.manifest.limits
    longest = longest_in_budget(package.spec, kv, sequences, engine.max_context, config)
    wanted = load_context(context, kv, longest)
    limits = resolve_limits(engine, wanted, sequences, config)
    check_kv_budget(
        package.spec,
        kv,
        package.manifest.capabilities.presets,
        what="this load",
        context=max(limits.max_context, kv.prefix_tokens + 1 if kv.prefix_tokens else 0),
        sequences=sequences,
        limit=engine.max_context,
        config=config,
    )
    sizes = _package_sizes(package, kv, limits, config, threads, with_text, baked_bytes, with_zones)
    if with_terminal:
        sizes = replace(sizes, host=sizes.host + _TERMINAL_BYTES)
    return plan_memory(sizes, context=limits.max_context, longest_context=longest, available=machine_memory().available)


def check_prompt_budget(package: Package, kv: KvChoice, what: str, tokens: int, kept_pages: int = 0) -> int:
    """The largest context that the engine takes and the KV budget holds, with pages demoted but for `kept_pages`. BudgetError
    where `what`, a prompt of so many tokens, and the first of its answer need more than that."""
    config, engine = InferenceConfig.load(), package.manifest.limits
    check_kv_budget(
        package.spec,
        kv,
        package.manifest.capabilities.presets,
        what=what,
        context=min(tokens, engine.max_context),  # what the engine cannot hold is refused with its own words
        sequences=1,
        limit=engine.max_context,
        config=config,
        kept_pages=kept_pages,
    )
    return most_in_budget(package.spec, kv, engine.max_context, config, kept_pages)


def package_presets(
    package: Package, memory: MemoryPlan, kv: KvChoice, *, sequences: int = 1, threads: int | None = None
) -> tuple[PresetPlan, ...]:
    """KV memory of each preset, for the load that `memory` plans. With a prefix those of others are as if it were baked with
    them: its file then has about as many bytes as its pages have bits."""
    config, engine = InferenceConfig.load(), package.manifest.limits
    limits = resolve_limits(engine, memory.context, sequences, config)

    def sizes(other: KvChoice) -> MemorySizes:
        bits, baked_bits = (sealed_bits(package.spec, PRESETS[name]) for name in (other.preset, kv.preset))
        baked_bytes = round(memory.baked * bits / baked_bits)
        return _package_sizes(package, other, limits, config, threads, with_text=True, baked_bytes=baked_bytes)

    return preset_plans(
        package.spec,
        sizes,
        memory,
        (kv.preset,) if kv.prefix_tokens else package.manifest.capabilities.presets,
        budget_bytes=kv.budget_bytes,
        prefix_tokens=kv.prefix_tokens,
        policy=kv.policy,
        sequences=sequences,
        longest_context=engine.max_context,
        config=config,
    )


def _package_sizes(
    package: Package,
    kv: KvChoice,
    limits: Limits,
    config: InferenceConfig,
    threads: int | None,
    with_text: bool,
    baked_bytes: int = 0,
    with_zones: bool = False,
) -> MemorySizes:
    from edge.executors.cpu_plan import CpuPlan
    from edge.executors.native import available_threads

    host = load_device(package.manifest.target).host
    return engine_sizes(
        CpuPlan.read(package.file(PLAN)),
        package.spec,
        limits,
        config,
        kv,
        threads=threads or available_threads(),
        host_bytes=host.base_bytes + (host.text_bytes if with_text else 0) + (_ZONES_BYTES if with_zones else 0),
        baked_bytes=baked_bytes,
    )


def load_context(context: int | None, kv: KvChoice, longest: int) -> int | Auto:
    """The context of a load: what is asked for, else all that a KV budget holds, else the configured one."""
    if context is None:
        return AUTO if kv.budget_bytes is None else longest
    return context


def package_target_plan(package: Package, *, context: int | None = None) -> TargetPlan:
    """The plan of a package whose engine is for a GPU. Its caches have a fixed length, which is its context. RequestError where
    a longer one is asked for."""
    from edge.machine import device_now
    from edge.target_plan import Weights, plan_target

    manifest, record = package.manifest, package.manifest.engine
    assert record is not None, "a CPU plan has another plan"
    profile = load_device(manifest.target)
    assert profile.gpu is not None, f"{manifest.target}: no GPU"
    length = manifest.limits.max_context
    if context is not None and context > length:
        raise RequestError(
            f"{package.path}: a context of {context}, the engine's caches hold {length}. Use {length}, or build it again with "
            f"--ctx-size {context}"
        )
    stored = sum(tensor.bytes for tensor in manifest.tensors)
    rows = 0 if package.spec.tied_head else sum(t.bytes for t in manifest.tensors if t.name == "embed.weight")
    read = stored - rows + rows // package.spec.vocab_size
    if record.plan is not None:  # what is loaded, in place of what it was built from
        stored = manifest.files[record.plan.path].bytes
    return plan_target(
        profile,
        record.kind,
        package.spec,
        Weights(stored, read),
        context=length,
        longest_context=length,
        here=machine_memory().available,
        now=device_now(manifest.target, profile.gpu),
        is_built=record.plan is not None,
    )


def open_runtime(
    package: Package,
    plan: MemoryPlan,
    kv: KvChoice,
    *,
    ask_for: Callable[[int], str],
    sequences: int = 1,
    threads: int | None = None,
    isa: str = "auto",
    ignore_budget: bool = False,
    config: InferenceConfig | Auto = AUTO,
    prefixes: Sequence[BakedPrefix] = (),
    read_budget: ReadBudget | None = None,
) -> Runtime:
    """A runtime for what was planned, with these prefixes. BudgetError, before anything is allocated, where the plan does not
    fit; `ask_for` as in `check_budget`. `read_budget` None: the configured one; RequestError where the preset has no pages to
    choose from."""
    from edge.opening import open_package

    settings = InferenceConfig.load() if isinstance(config, Auto) else config
    if read_budget is not None:
        check_read_budget(read_budget, kv.preset)
        settings = replace(settings, read_budget=str(read_budget))

    if not ignore_budget:
        check_budget(plan, str(package.path), ask_for)
    return open_package(
        package,
        context=plan.context,
        max_sequences=sequences,
        threads=AUTO if threads is None else threads,
        pool_bytes=AUTO if kv.budget_bytes is None else kv.budget_bytes,
        preset=kv.preset,
        policy=kv.policy,
        isa=isa,
        config=settings,
        prefixes=prefixes,
    )


def check_read_budget(budget: ReadBudget, preset: PresetName) -> None:
    """RequestError where fewer pages are to be read, and the preset keeps none whose keys tell which matter."""
    if not isinstance(budget, ReadAll) and not PRESETS[preset].seals:
        names = ", ".join(name for name in PRESETS if PRESETS[name].seals)
        raise RequestError(
            f"--read-budget {budget}: pages of the preset {preset} do not tell which to read. Ask for one that seals them "
            f"(--kv-preset {names}), or leave it out"
        )
