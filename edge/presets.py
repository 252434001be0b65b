"""KV precision presets. Owns: PRESETS, their order, which of them a model's heads allow. Needs: contract. Never: bytes (pages),
kernels, quality (a package's manifest lists what was checked).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from edge.contract import can_hold
from edge.errors import RequestError

PresetName = Literal["exact", "safe", "balanced", "tight"]
Level = Literal["high", "medium", "low"]


@dataclass(frozen=True, slots=True)
class Preset:
    """The formats (contract.PAGE_FORMATS) in which sealed pages keep K and V; pages that are not sealed are fp16."""

    key_format: str
    value_format: str

    @property
    def seals(self) -> bool:
        """Whether sealed pages differ from open ones at all: K and V both do, or neither."""
        return self.key_format != "fp16"


PRESETS: dict[PresetName, Preset] = {  # from the most exact to the smallest
    "exact": Preset("fp16", "fp16"),
    "safe": Preset("int8", "int4"),
    "balanced": Preset("int4", "int4"),
    "tight": Preset("int4", "int2"),
}

# (K, V) formats of sealed pages, from the most exact to the smallest. Page moves lead from each to the next.
SEALED_FORMS = (("int8", "int8"), ("int8", "int4"), ("int4", "int4"), ("int4", "int2"))

LEVELS: dict[Level, PresetName] = {"high": "exact", "medium": "safe", "low": "balanced"}  # of the articles


def presets_for(head_dim: int) -> tuple[PresetName, ...]:
    """The presets that pages of heads of `head_dim` allow; `exact` always."""
    return tuple(
        name
        for name, preset in PRESETS.items()
        if can_hold(False, preset.key_format, head_dim) and can_hold(True, preset.value_format, head_dim)
    )


def default_preset(wanted: PresetName, offered: Sequence[str]) -> PresetName:
    """`wanted`, or the next more exact one that is `offered`. RequestError where there is none: a preset less exact than the
    default is taken by nobody who has not asked for it."""
    names = list(PRESETS)
    for name in reversed(names[: names.index(wanted) + 1]):
        if name in offered:
            return name
    raise RequestError(
        f"the default preset is {wanted}, the engine has neither it nor a more exact one. Ask for one: --kv-preset {offered[0]}"
    )
