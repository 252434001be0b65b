"""Settings of the runtime, read once. Owns: InferenceConfig. Needs: yaml/runtime/inference.yaml. Never: decisions."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal

from edge.contract import OFFSET_UNIT, SEAL_TOKENS
from edge.pages.read_budget import parse_read_budget
from edge.policies import PolicyName
from edge.presets import PresetName
from edge.yamls import load_yaml, yaml_root


class Auto(enum.Enum):
    """Let the runtime choose; what it chose is reported."""

    AUTO = "auto"


AUTO = Auto.AUTO


@dataclass(frozen=True, slots=True)
class InferenceConfig:
    """yaml/runtime/inference.yaml; each key is explained there."""

    context: int
    max_step_tokens: int
    chunk_tokens: int
    slab_bytes: int
    pool_rule: Literal["fitted", "articles"]
    pool_warn_share: float
    kv_preset: PresetName
    prefix_cache: bool
    kv_policy: PolicyName
    deterministic: bool
    read_budget: str = "all"  # edge/pages/read_budget.py

    def __post_init__(self) -> None:
        if self.context < 1:
            raise ValueError("context must be at least 1")
        if not 1 <= self.chunk_tokens <= SEAL_TOKENS:
            raise ValueError(f"chunk_tokens must be 1 to {SEAL_TOKENS}: no chunk crosses a seal border")
        if self.max_step_tokens < 1:
            raise ValueError("max_step_tokens must be at least 1")
        if self.slab_bytes < OFFSET_UNIT or self.slab_bytes % OFFSET_UNIT:
            raise ValueError(f"slab_bytes must be a multiple of {OFFSET_UNIT}")
        if not 0.0 < self.pool_warn_share <= 1.0:
            raise ValueError("pool_warn_share must be above 0 and at most 1")
        try:
            parse_read_budget(self.read_budget)
        except ValueError as error:
            raise ValueError(f"read_budget: {error}") from None

    @classmethod
    def load(cls) -> InferenceConfig:
        """The shipped file. ConfigError where somebody broke it."""
        return load_yaml(yaml_root() / "runtime" / "inference.yaml", cls)
