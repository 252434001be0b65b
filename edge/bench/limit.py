"""The least time that work can take on a machine. Owns: the formula. Needs: Work, MachineRates. Never: measures.

limit = max(bytes / bandwidth, sum of operations / rate of their dot product)
"""

from __future__ import annotations

from dataclasses import dataclass

from edge.bench.rates import MachineRates
from edge.bench.work import Work


@dataclass(frozen=True, slots=True)
class Limit:
    seconds: float
    bound_by: str  # "memory" or "dot products"


def least_seconds(work: Work, rates: MachineRates) -> Limit:
    """Where an instruction set has no rate for some of the operations, these count as free."""
    memory = work.bytes / rates.bytes_per_s
    parts = (
        (work.int8_operations, rates.of(rates.matrix_kind)),
        (work.fp32_operations, rates.fp32),
        (work.attention_operations, rates.of(rates.attention_kind)),
    )
    products = sum(operations / rate for operations, rate in parts if rate)
    return Limit(memory, "memory") if memory >= products else Limit(products, "dot products")
