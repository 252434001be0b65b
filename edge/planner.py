"""Memory before anything is allocated. Owns: MemoryPlan, and what would fit. Needs: sizes as numbers or functions of the
context. Never: allocation, measuring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edge.errors import BudgetError
from edge.pages.fit import longest_context
from edge.units import human_bytes


@dataclass(frozen=True, slots=True)
class MemorySizes:
    """Bytes of one engine. What grows with the context is a function of it."""

    weights: int
    pool: Callable[[int], int]
    workspace: Callable[[int], int]
    host: int
    runtime: int = 0
    system: int = 0
    baked: int = 0

    def total(self, context: int) -> int:
        fixed = self.weights + self.baked + self.host + self.runtime + self.system
        return fixed + self.pool(context) + self.workspace(context)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The memory table of a context, in bytes."""

    context: int
    weights: int  # of the engine; on the cpu target the mapped weight file
    pool: int  # all KV memory
    workspace: int  # activations and logits
    host: int  # interpreter, libraries, tokenizer
    available: int  # what the machine can give
    largest_context: int | None  # that fits, at most the model's own; None: not even one page
    runtime: int = 0  # of a GPU engine: CUDA context, TensorRT and its kernels
    system: int = 0  # what the running system keeps of a device that was not asked
    baked: int = 0  # prefixes whose files are mapped behind the pool

    @property
    def total(self) -> int:
        return sum(size for _, size in self.rows)

    @property
    def fits(self) -> bool:
        return self.total <= self.available

    @property
    def rows(self) -> tuple[tuple[str, int], ...]:
        """What adds up to the total. What a kind of engine does not have is left out."""
        rows = (("weights", self.weights), ("pool", self.pool), ("workspace", self.workspace))
        rest = (
            ("baked prefixes", self.baked),
            ("host", self.host),
            ("runtime", self.runtime),
            ("system", self.system),
        )
        return *rows, *(row for row in rest if row[1])


def plan_memory(sizes: MemorySizes, *, context: int, longest_context: int, available: int) -> MemoryPlan:
    """The plan for `context` tokens, and the largest context up to `longest_context` that fits into `available` bytes."""
    return MemoryPlan(
        context=context,
        weights=sizes.weights,
        pool=sizes.pool(context),
        workspace=sizes.workspace(context),
        host=sizes.host,
        available=available,
        largest_context=largest_context(sizes, longest_context, available),
        runtime=sizes.runtime,
        system=sizes.system,
        baked=sizes.baked,
    )


def check_budget(plan: MemoryPlan, place: str, ask_for: Callable[[int], str]) -> None:
    """BudgetError, with what would fit, where the plan does not. `place` names the model or package in the message,
    `ask_for` how the user asks for a context of so many tokens: that is the caller's to know."""
    if plan.fits:
        return
    fact = (
        f"{place}: needs {human_bytes(plan.total)} at a context of {plan.context}, {human_bytes(plan.available)} are available"
    )
    if plan.largest_context is None:
        raise BudgetError(
            f"{fact}. No context fits: free some memory, or build a smaller tier. To try it all the same: --ignore-budget"
        )
    raise BudgetError(f"{fact}. What fits: {ask_for(plan.largest_context)}. To try it all the same: --ignore-budget")


def largest_context(sizes: MemorySizes, longest: int, available: int) -> int | None:
    """The largest context up to `longest` that fits; None: not even one page. The total never falls when the context grows."""
    return longest_context(lambda context: sizes.total(context) <= available, longest)
