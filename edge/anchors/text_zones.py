"""Zones of the pages of a prompt, from its text. Owns: which part of a prompt is looked at. Needs: anchors, a tokenizer. Never:
what a zone means for memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edge.contract import PAGE_TOKENS, SEAL_TOKENS

if TYPE_CHECKING:
    from edge.text.located import LocatedIds

_LEAST_TOKENS = 3 * SEAL_TOKENS  # with fewer no page is sealed


def text_zones(text: str, located: LocatedIds, begin: int) -> bytes:
    """A byte for each page up to the end of `text`, which stands in the prompt of `located` from its character `begin` on; b""
    for a prompt of which nothing is sealed. None of them is `recent`: what is so changes while an answer grows."""
    if len(located.ids) < _LEAST_TOKENS:
        return b""
    from edge.anchors.config import AnchorConfig
    from edge.anchors.detect import find_anchors
    from edge.anchors.phrases import load_phrases
    from edge.anchors.zones import plan_zones

    config = AnchorConfig.load()
    anchors = located.tokens_at(find_anchors(text, config, load_phrases()).positions + begin)
    tokens = int(located.tokens_at(np.array([begin + len(text) - 1]))[0]) + 1
    zones = plan_zones(
        anchors,
        tokens + 2 * SEAL_TOKENS,  # as if more came behind it
        anchor_window=config.anchor_window,
        section_window=config.section_window,
    )
    return zones.zones[: -(-tokens // PAGE_TOKENS)].tobytes()
