"""What this machine does at best: bytes and operations a second. Owns: MachineRates. Needs: the native core. Never: a model."""

from __future__ import annotations

from dataclasses import dataclass

from edge.errors import BudgetError

KINDS = ("int8", "int8_scaled", "int16", "fp32", "bf16")  # DotKind of the native core, in its order
_ROUNDS = 4
_LEAST_BYTES = 1 << 20  # a smaller buffer would measure the calls


@dataclass(frozen=True, slots=True)
class MachineRates:
    """Measured with `threads` threads, for one instruction set. None: it has no such dot product."""

    isa: str
    threads: int
    buffer_bytes: int  # that were read
    bytes_per_s: float  # the best over 1 to 16 streams a thread and several distances of prefetch
    streams: int  # a thread, of the best
    ahead_bytes: int  # from what a stream reads to what it prefetches, of the best; 0: it does not
    int8: float | None  # operations/s: products of int8, summed to int32
    int8_scaled: float | None  # the same with a scale and a minimum per 32 inputs, as our weights have them
    int16: float | None
    fp32: float | None
    bf16: float | None

    @property
    def matrix_kind(self) -> str | None:
        """The dot product of quantised matrices: with scales where that was measured."""
        return "int8_scaled" if self.int8_scaled else "int8" if self.int8 else None

    @property
    def attention_kind(self) -> str | None:
        """The fastest dot product that attention may use."""
        found = {kind: rate for kind in ("int16", "bf16", "fp32") if (rate := self.of(kind)) is not None}
        return max(found, key=found.__getitem__) if found else None

    def of(self, kind: str | None) -> float | None:
        """Operations a second of a kind that this class names."""
        rates = {"int8": self.int8, "int8_scaled": self.int8_scaled, "int16": self.int16, "fp32": self.fp32, "bf16": self.bf16}
        return None if kind is None else rates[kind]


def measure_rates(isa: str, threads: int, buffer_bytes: int) -> MachineRates:
    """Reads a buffer of about `buffer_bytes`, which it allocates and frees, and multiplies in registers: about a second for
    100 MB. BudgetError where the buffer cannot be had."""
    from edge.executors.native_core import load_core

    core = load_core()
    asked = max(buffer_bytes, _LEAST_BYTES)
    bytes_per_s, streams, ahead = core.best_bandwidth(threads, asked, _ROUNDS)
    if bytes_per_s == 0.0:
        raise BudgetError(f"bandwidth: a buffer of {asked} bytes or {threads} threads cannot be had. Free some memory")
    int8, int8_scaled, int16, fp32, bf16 = (core.dot_rate(isa, kind, threads, _ROUNDS) or None for kind in range(len(KINDS)))
    return MachineRates(isa, threads, asked, bytes_per_s, streams, ahead, int8, int8_scaled, int16, fp32, bf16)
