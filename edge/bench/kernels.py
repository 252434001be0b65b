"""Each kernel alone, beside what the machine allows it. Owns: the cases and their sizes. Needs: the native core, rates.
Never: a model.

Sizes are those of a model of a billion weights: 2,048 inputs, 32 heads of 64 over 8 kv heads. What is read from memory is
larger than most caches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from edge.bench.rates import MachineRates, measure_rates
from edge.contract import WEIGHT_KINDS
from edge.errors import BudgetError

# Of 96 MiB half came out of a third-level cache of "32 MiB" when a pass was repeated: 90 GB/s, against 48 from 384 MiB.
BEYOND_CACHE = 384 << 20
IN_CACHE = 4 << 20  # of weights, where products of many rows are to be the limit
_SECONDS = 0.12  # of each case
_WIDTH, _HEADS, _KV_HEADS, _HEAD_DIM = 2048, 32, 8, 64
_DECODE_CONTEXT, _PREFILL_CONTEXT = 4096, 1024
_CHUNK = 128
_ROWS = (1, 2, 4, 8, _CHUNK)

# TimedKernel of the native core, in its order.
_MATMUL, _GATED, _NORM, _ROTARY, _DECODE, _PREFILL = range(6)


@dataclass(frozen=True, slots=True)
class KernelCase:
    """What is timed: one row of the table."""

    group: str
    name: str
    kernel: int
    rows: int
    dot: str | None  # the dot product that limits it (rates.MachineRates); None: memory alone
    from_memory: bool  # whether what it reads is larger than the cache, so that bandwidth limits it
    kind: str = "fp32"  # contract.WEIGHT_KINDS, of matrices
    minima: bool = False
    context: int = 0

    def numbers(self) -> list[int]:
        """KernelCase of the native core."""
        group = 32 if self.kind in ("int4", "int8") else 0
        size = BEYOND_CACHE if self.from_memory else IN_CACHE
        heads = (_HEADS, _KV_HEADS, _HEAD_DIM) if self.context else (0, 0, 0)
        return [self.kernel, self.rows, WEIGHT_KINDS[self.kind], group, int(self.minima), _WIDTH, *heads, self.context, size]


@dataclass(frozen=True, slots=True)
class KernelFigures:
    """How fast a case was on one instruction set."""

    case: KernelCase
    isa: str
    seconds: float  # of a pass
    bytes: float
    operations: float  # 0: they are not counted
    share_of_limit: float | None  # None: it has no limit that was measured

    @property
    def gb_per_s(self) -> float:
        return self.bytes / self.seconds / 1e9

    @property
    def gops(self) -> float | None:
        return self.operations / self.seconds / 1e9 if self.operations else None

    def as_dict(self) -> dict[str, Any]:
        return {
            "isa": self.isa,
            "group": self.case.group,
            "kernel": self.case.name,
            "rows": self.case.rows,
            "gb_per_s": self.gb_per_s,
            "gops": self.gops,
            "share_of_limit": self.share_of_limit,
        }


def kernel_cases() -> tuple[KernelCase, ...]:
    """All that is timed, in the order of the table."""
    forms = (("int4, minima", "int4", True, "int8_scaled"), ("int4", "int4", False, "int8_scaled"),
             ("int8", "int8", False, "int8_scaled"), ("fp16", "fp16", False, "fp32"))  # fmt: skip
    matrices = tuple(
        KernelCase(
            "matrix", f"{name}, {rows} {'row' if rows == 1 else 'rows'}", _MATMUL, rows, dot, rows < _CHUNK, kind, minima
        )
        for name, kind, minima, dot in forms
        for rows in _ROWS
    )
    gates = tuple(
        KernelCase("gate and up", f"int4, minima, {rows} {'row' if rows == 1 else 'rows'}", _GATED, rows, "int8_scaled",
                   rows < _CHUNK, "int4", True)
        for rows in (1, _CHUNK)
    )  # fmt: skip
    return (
        *matrices,
        *gates,
        KernelCase("rows", "norm and quantise, 128 rows", _NORM, _CHUNK, None, False),
        KernelCase("rows", "rotary and append, 128 rows", _ROTARY, _CHUNK, None, False, context=_PREFILL_CONTEXT),
        KernelCase("attention", "1 row at 4,096", _DECODE, 1, "attention", True, context=_DECODE_CONTEXT),
        KernelCase("attention", "128 rows at 1,024", _PREFILL, _CHUNK, "attention", False, context=_PREFILL_CONTEXT),
    )


def default_sets() -> tuple[str, ...]:
    """The instruction sets that run here, the plain loops only where there is nothing else."""
    from edge.executors.native_core import load_core

    names = tuple(load_core().instruction_sets())
    return names[1:] or names


def measure_kernels(sets: Sequence[str], threads: int) -> Iterator[tuple[MachineRates, KernelFigures]]:
    """Every case on each of `sets`, with the rates of the set that its share is of. BudgetError where memory is short."""
    for isa in sets:
        rates = measure_rates(isa, threads, BEYOND_CACHE)
        for case in kernel_cases():
            yield rates, _measure(case, rates)


def _measure(case: KernelCase, rates: MachineRates) -> KernelFigures:
    from edge.executors.native_core import load_core

    seconds, count, operations = load_core().time_kernel(rates.isa, case.numbers(), rates.threads, _SECONDS)
    if seconds == 0.0:
        raise BudgetError(f"kernels: memory for {case.group}, {case.name} cannot be had. Free some, or use fewer --threads")
    least = _least_seconds(case, rates, count, operations)
    return KernelFigures(case, rates.isa, seconds, count, operations, least / seconds if least else None)


def _least_seconds(case: KernelCase, rates: MachineRates, count: float, operations: float) -> float | None:
    """The longer of reading and multiplying; None where neither limits it."""
    kinds = {"attention": rates.attention_kind, "int8_scaled": rates.matrix_kind, "fp32": "fp32"}
    rate = rates.of(kinds[case.dot]) if case.dot else None
    memory = count / rates.bytes_per_s if case.from_memory else 0.0
    return max(memory, operations / rate if rate else 0.0) or None
