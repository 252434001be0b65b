"""What there is to say of one text: its anchors, sections, zones, and the KV memory it takes. Owns: TextReport. Needs: detect,
zones, presets. Never: terminals, files.

Without a tokenizer tokens are estimated from characters, and whoever shows them says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edge.anchors.config import AnchorConfig
from edge.anchors.detect import Anchors, find_anchors
from edge.anchors.lines import LETTER, character_classes
from edge.anchors.phrases import Phrases
from edge.anchors.signals import MARKS, SIGNALS, signal_names
from edge.anchors.zones import PageZones, plan_zones
from edge.config import InferenceConfig
from edge.contract import PAGE_TOKENS, SEAL_TOKENS, part_bytes
from edge.errors import BudgetError
from edge.pages.budget import plan_pool
from edge.pages.fit import peak_extents
from edge.pages.geometry import GroupPages, bytes_of, page_groups, page_kind, pages_for, sealed_bits
from edge.presets import PRESETS, Preset, presets_for

if TYPE_CHECKING:
    from edge.spec import ModelSpec
    from edge.text.tokenizer import Tokenizer

# Tokens of a character. Measured on 60,000 characters a language of manuals, SmolLM2 and Gemma 3: English 0.27 and 0.25, German
# 0.40 and 0.27, French 0.35 and 0.26, Spanish 0.35 and 0.25, a Chinese character 2.0 and 0.8.
_PER_CHARACTER, _PER_LETTER = 0.3, 0.8

_PLAIN_DIM = 64  # channels of a head where no model is given
_TITLE_CHARS = 200  # of a heading that are looked at


@dataclass(frozen=True, slots=True)
class Section:
    """From one anchor to the next; the first begins with the text, and has no signals where no anchor stands there."""

    title: str
    level: int  # 0: of a text that begins without an anchor
    signals: tuple[str, ...]
    characters: tuple[int, int]  # the first, and the one behind the last
    tokens: tuple[int, int]
    pages: tuple[int, int]


@dataclass(frozen=True, slots=True)
class PresetMemory:
    """KV memory of a context in one preset."""

    preset: str
    bits: float  # of an element of a sealed page
    bytes: int | None  # None: no model was given
    smaller: float  # than fp16 pages of all layers: times


@dataclass(frozen=True, slots=True)
class TextReport:
    name: str
    anchors: Anchors
    counts: dict[str, tuple[int, int]]  # by signal: places, and anchors among them
    num_tokens: int
    exact: bool  # tokens are the model's own, not estimated
    zones: PageZones
    sections: tuple[Section, ...]
    context: int  # tokens that `memory` is for
    memory: tuple[PresetMemory, ...]


@dataclass(frozen=True, slots=True)
class Model:
    """What a package or a source tells of a model here."""

    name: str
    tokenizer: Tokenizer
    spec: ModelSpec
    longest: int  # tokens that it takes


def report_text(
    name: str, text: str, config: AnchorConfig, phrases: Phrases, model: Model | None, context: int | None
) -> TextReport:
    """The report of `text`, which is not empty. `context`: tokens that memory is computed for; None: those of the text."""
    anchors = find_anchors(text, config, phrases)
    if model is None:
        ends = _estimated_ends(text)
        num_tokens, starts = int(ends[-1]) + 1, ends[anchors.positions]
    else:
        located = model.tokenizer.encode_prompt_located(text)
        num_tokens, starts = len(located.ids), located.tokens_at(anchors.positions)
    zones = plan_zones(starts, num_tokens, anchor_window=config.anchor_window, section_window=config.section_window)
    counts = {signal: (len(anchors.places[bit]), int((anchors.signals >> bit & 1).sum())) for bit, signal in enumerate(SIGNALS)}
    return TextReport(
        name, anchors, counts, num_tokens, model is not None, zones, _sections(text, anchors, starts, num_tokens),
        context or num_tokens, _memory(None if model is None else model.spec, context or num_tokens),
    )  # fmt: skip


def report_row(report: TextReport) -> dict[str, object]:
    """What `--json` prints of one text."""
    return {
        "name": report.name,
        "characters": report.anchors.characters,
        "tokens": report.num_tokens,
        "tokens_are": "exact" if report.exact else "estimated",
        "pages": len(report.zones.zones),
        "page_tokens": PAGE_TOKENS,
        "signals": {name: {"places": places, "anchors": kept} for name, (places, kept) in report.counts.items()},
        "marks": {name: len(report.anchors.marks[name]) for name in MARKS},
        "wordings": [
            {"language": language, "domain": domain, "places": count}
            for (language, domain), count in sorted(report.anchors.wordings.items())
        ],
        "anchors": len(report.anchors),
        "zones": report.zones.counts(),
        "page_zones": report.zones.zones.tolist(),
        "page_sections": report.zones.sections.tolist(),
        "sections": [
            {
                "title": section.title, "level": section.level, "signals": list(section.signals),
                "characters": list(section.characters), "tokens": list(section.tokens), "pages": list(section.pages),
            }
            for section in report.sections
        ],
        "context": report.context,
        "memory": [
            {"preset": row.preset, "bits": row.bits, "bytes": row.bytes, "smaller": round(row.smaller, 3)}
            for row in report.memory
        ],
    }  # fmt: skip


def _estimated_ends(text: str) -> np.ndarray:
    """int64 [characters]: about which token holds each."""
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    tokens = np.cumsum(np.where(character_classes(codes) == LETTER, _PER_LETTER, _PER_CHARACTER))
    ends: np.ndarray = np.maximum(np.ceil(tokens).astype(np.int64) - 1, 0)
    return ends


def _sections(text: str, anchors: Anchors, starts: np.ndarray, num_tokens: int) -> tuple[Section, ...]:
    """One for each anchor, and one for what stands in front of the first."""
    positions, tokens = anchors.positions.tolist(), starts.tolist()
    ends = anchors.ends.tolist()
    titles = [section_title(text[begin:end]) for begin, end in zip(positions, ends, strict=True)]
    levels, signals = anchors.levels.tolist(), [signal_names(int(mask)) for mask in anchors.signals]
    if not positions or text[: positions[0]].strip():
        positions, tokens = [0, *positions], [0, *tokens]
        titles, levels, signals = ["", *titles], [0, *levels], [(), *signals]
    ends, token_ends = [*positions[1:], len(text)], [*tokens[1:], num_tokens]
    return tuple(
        Section(title, level, names, (begin, end), (token, token_end), _pages(token, token_end))
        for title, level, names, begin, end, token, token_end in zip(
            titles, levels, signals, positions, ends, tokens, token_ends, strict=True
        )
    )


def section_title(written: str) -> str:
    """A heading without its marks."""
    plain = re.sub(r"<[^<>]{0,1000}>", " ", written[:_TITLE_CHARS])
    return " ".join(plain.strip("#*_=>[] \t\r\n").split())


def _pages(begin: int, end: int) -> tuple[int, int]:
    """Pages that hold tokens begin .. end - 1; none where a section has no token of its own."""
    return begin // PAGE_TOKENS, max(-(-end // PAGE_TOKENS), begin // PAGE_TOKENS)


def _memory(spec: ModelSpec | None, context: int) -> tuple[PresetMemory, ...]:
    if spec is None:
        return tuple(
            PresetMemory(name, _plain_bits(preset), None, _smaller(preset, context)) for name, preset in PRESETS.items()
        )
    whole = pages_for(context) * page_kind(spec, len(spec.layers), "fp16", "fp16").bytes
    rows, config = [], InferenceConfig.load()  # as `edge plan` plans the pool
    for name in presets_for(spec.head_dim):
        size = _planned_bytes(page_groups(spec, PRESETS[name]), context, config)
        rows.append(PresetMemory(name, sealed_bits(spec, PRESETS[name]), size, whole / size))
    return tuple(rows)


def _planned_bytes(groups: tuple[GroupPages, ...], context: int, config: InferenceConfig) -> int:
    try:
        return plan_pool(groups, context, 1, config).pool_bytes
    except BudgetError:  # a text longer than any pool is worth a report, too: its pages, without slabs
        return bytes_of(peak_extents(groups, context, 1, config.chunk_tokens))


def _plain_bits(preset: Preset) -> float:
    """Bits of an element of a sealed page of heads of `_PLAIN_DIM`."""
    key = part_bytes(False, preset.key_format, _PLAIN_DIM)
    value = part_bytes(True, preset.value_format, _PLAIN_DIM)
    return 8 * (key + value) / (2 * PAGE_TOKENS * _PLAIN_DIM)


def _smaller(preset: Preset, context: int) -> float:
    """Of a model whose layers see everything: its pages in fp16 against the preset's."""
    pages = pages_for(context)
    unsealed = min(pages, 2 * SEAL_TOKENS // PAGE_TOKENS + 1)
    fp16 = _plain_bits(PRESETS["exact"])
    return pages * fp16 / (unsealed * fp16 + (pages - unsealed) * _plain_bits(preset))
