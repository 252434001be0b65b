"""How a tensor of the model lies in an engine. Owns: EngineWeight. Needs: nothing. Never: values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineWeight:
    """One tensor, for the manifest."""

    kind: str  # int4, int8, fp16, fp32
    bytes: int
    rounding_error: float  # rms of what the engine rounded on top of the tier, relative to the weights'; 0.0: nothing
