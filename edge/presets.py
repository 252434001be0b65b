"""KV precision presets, and what KV memory weighs in each. Owns: PRESETS, bytes of a page and of a sequence. Needs: contract,
geometry. Never: kernels; which preset an engine can do, its manifest says.

The layouts are those of the paged attention contract (edge/contract.py): K asymmetric per channel over the 32 tokens of a page,
one scale and one zero in fp16; V asymmetric per token in groups of channels, likewise. The first page of a full group and the
pages behind the last seal border but one are read in fp16, whatever the preset.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edge.contract import OFFSET_UNIT, PAGE_TOKENS, SEAL_TOKENS
from edge.pages.geometry import peak_pages
from edge.spec import ModelSpec

PresetName = Literal["exact", "safe", "balanced", "tight"]

_SCALE_AND_ZERO = 4  # bytes, fp16 each
_FP16_BITS = 16


@dataclass(frozen=True, slots=True)
class Preset:
    """How sealed pages keep K and V."""

    key_bits: int
    value_bits: int
    value_group: int  # channels that share a scale and a zero

    @property
    def seals(self) -> bool:
        """Whether sealed pages differ from open ones at all."""
        return self.key_bits < _FP16_BITS

    @property
    def bits(self) -> float:
        """Bits of an element of a sealed page, scales and zeros counted; K and V hold equally many."""
        if not self.seals:
            return _FP16_BITS
        key = self.key_bits + 8 * _SCALE_AND_ZERO / PAGE_TOKENS
        value = self.value_bits + 8 * _SCALE_AND_ZERO / self.value_group
        return (key + value) / 2


PRESETS: dict[PresetName, Preset] = {
    "exact": Preset(key_bits=16, value_bits=16, value_group=0),
    "safe": Preset(key_bits=8, value_bits=4, value_group=64),
    "balanced": Preset(key_bits=4, value_bits=4, value_group=64),
    "tight": Preset(key_bits=4, value_bits=2, value_group=32),
}

READY: tuple[PresetName, ...] = ("exact",)  # what engines that this version builds can do
SEQUENCES = 1  # that an engine with linear KV carries


def linear_bytes(spec: ModelSpec, context: int, sequences: int) -> int:
    """KV in one fp16 tensor a layer, for K and for V: every layer holds the whole context, windows free nothing."""
    return sequences * context * len(spec.layers) * 2 * spec.num_kv_heads * spec.head_dim * 2


def paged_bytes(spec: ModelSpec, context: int, sequences: int, preset: Preset) -> int:
    """KV in pages: a group with a sliding window holds the pages that a query can still see, older ones are sealed."""
    total = 0
    for layers, window in zip(spec.groups, spec.group_windows, strict=True):
        pages = peak_pages(window, context)
        # A query at t reads what lies before 128 * (t // 128 - 1) sealed: at most two borders' worth of pages is not. A full
        # group also keeps its first page, the sink, as it is.
        unsealed = pages if not preset.seals else min(pages, 2 * SEAL_TOKENS // PAGE_TOKENS + (0 if window else 1))
        open_page = page_bytes(spec, len(layers), PRESETS["exact"])
        total += unsealed * open_page + (pages - unsealed) * page_bytes(spec, len(layers), preset)
    return sequences * total


def page_bytes(spec: ModelSpec, layers: int, preset: Preset) -> int:
    """K and V of one sealed page of a group of so many layers; each of the two extents fills whole units of 256 bytes."""
    channels = spec.num_kv_heads * spec.head_dim
    key = PAGE_TOKENS * channels * preset.key_bits // 8
    value = PAGE_TOKENS * channels * preset.value_bits // 8
    if preset.seals:
        key += channels * _SCALE_AND_ZERO
        value += PAGE_TOKENS * spec.num_kv_heads * -(-spec.head_dim // preset.value_group) * _SCALE_AND_ZERO
    return sum(-(-layers * part // OFFSET_UNIT) * OFFSET_UNIT for part in (key, value))
