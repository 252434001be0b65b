"""A runtime over the engine of a package. Owns: how one is opened. Needs: package, executors, load. Never: a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edge.baked.mapped import MappedPrefixes
from edge.config import AUTO, Auto, InferenceConfig
from edge.kv_budget import KvChoice, kv_pool, lowest_preset
from edge.load import resolve_limits
from edge.package import Package
from edge.policies import PolicyName
from edge.presets import PresetName
from edge.runnable import check_runs_here, choose_preset
from edge.runtime import Runtime

if TYPE_CHECKING:
    from edge.baked.prefix import BakedPrefix


def open_package(
    package: Package,
    *,
    context: int | Auto = AUTO,
    max_sequences: int = 1,
    threads: int | Auto = AUTO,
    pool_bytes: int | Auto = AUTO,
    preset: PresetName | Auto = AUTO,
    policy: PolicyName | Auto = AUTO,
    isa: str = "auto",
    config: InferenceConfig | Auto = AUTO,
    prefixes: Sequence[BakedPrefix] = (),
) -> Runtime:
    """A runtime over the engine of `package`. PackageError where it does not run here, RequestError where it does not take
    such a load, BudgetError where the memory cannot be had.

    `preset` AUTO: that of the configuration, or the next more exact one that the engine has; `Runtime.preset` tells;
    with prefixes the one that they were baked with. PackageError where another engine or preset computed these.
    Requests that begin with one of `prefixes` go on from its pages, for which the pool has no room then.
    """
    from edge.executors.native import NativeExecutor, available_threads

    settings = InferenceConfig.load() if isinstance(config, Auto) else config
    if prefixes and isinstance(preset, Auto):
        chosen = prefixes[0].header.engine.preset
    else:
        chosen = choose_preset(package, preset, settings)
    check_runs_here(package, chosen)
    for prefix in prefixes:
        prefix.check_engine(package.manifest, chosen)
    limits = resolve_limits(package.manifest.limits, context, max_sequences, settings)
    kv = KvChoice(
        chosen,
        None if isinstance(pool_bytes, Auto) else pool_bytes,
        min((prefix.header.tokens for prefix in prefixes), default=0),
        settings.kv_policy if isinstance(policy, Auto) else policy,
        lowest_preset(package, chosen, settings),
    )
    pool_size = kv_pool(package.spec, kv, limits.max_context, max_sequences, settings)
    executor = NativeExecutor.open(
        package.path / "engine",
        package.spec,
        limits,
        pool_bytes=pool_size.pool_bytes,
        threads=available_threads() if isinstance(threads, Auto) else threads,
        isa=isa,
        files=[prefix.pool_file for prefix in prefixes],
    )
    mapped = MappedPrefixes(prefixes, executor.file_offsets)
    return Runtime(package.spec, executor, pool_size, limits, settings, chosen, kv.policy, kv.lowest, mapped)
