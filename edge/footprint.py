"""From a package to a runtime inside the budget. Owns: the memory plan of a package, the check before a load. Needs: planner,
runtime. Never: text, terminals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from edge.config import AUTO, InferenceConfig
from edge.devices import load_device
from edge.load import resolve_limits
from edge.monitors.memory import machine_memory
from edge.package import PLAN, Package
from edge.pages.budget import plan_pool
from edge.planner import MemoryPlan, MemorySizes, check_budget, plan_memory

if TYPE_CHECKING:
    from edge.executors.cpu_plan import CpuPlan
    from edge.manifest import Limits
    from edge.runtime import Runtime
    from edge.spec import ModelSpec


def engine_sizes(
    plan: CpuPlan, spec: ModelSpec, limits: Limits, config: InferenceConfig, *, threads: int, host_bytes: int
) -> MemorySizes:
    """Bytes of a CPU engine under `limits`, as functions of the context."""
    from edge.executors.native import workspace_bytes

    return MemorySizes(
        weights=plan.weight_bytes,
        pool=lambda context: plan_pool(spec, context, limits.max_sequences, config).pool_bytes,
        workspace=lambda context: workspace_bytes(plan, spec, replace(limits, max_context=context), threads),
        host=host_bytes,
    )


def package_plan(
    package: Package,
    *,
    context: int | None = None,
    sequences: int = 1,
    threads: int | None = None,
    with_text: bool = True,
) -> MemoryPlan:
    """The memory table of a load of `package`. None: the configured context, all processors. RequestError where the engine
    does not take such a load."""
    from edge.executors.cpu_plan import CpuPlan
    from edge.executors.native import available_threads

    config = InferenceConfig.load()
    limits = resolve_limits(package.manifest.limits, AUTO if context is None else context, sequences, config)
    host = load_device(package.manifest.target).host
    sizes = engine_sizes(
        CpuPlan.read(package.file(PLAN)),
        package.spec,
        limits,
        config,
        threads=threads or available_threads(),
        host_bytes=host.base_bytes + (host.text_bytes if with_text else 0),
    )
    longest = package.manifest.limits.max_context
    return plan_memory(sizes, context=limits.max_context, longest_context=longest, available=machine_memory().available)


def open_runtime(
    package: Package,
    plan: MemoryPlan,
    *,
    ask_for: Callable[[int], str],
    sequences: int = 1,
    threads: int | None = None,
    isa: str = "auto",
    ignore_budget: bool = False,
) -> Runtime:
    """A runtime for what was planned. BudgetError, before anything is allocated, where the plan does not fit; `ask_for` as in
    `check_budget`."""
    from edge.runtime import Runtime

    if not ignore_budget:
        check_budget(plan, str(package.path), ask_for)
    return Runtime.open(
        package, context=plan.context, max_sequences=sequences, threads=AUTO if threads is None else threads, isa=isa
    )
