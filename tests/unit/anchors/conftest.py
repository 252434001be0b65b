"""The shipped numbers and phrases, and a short way to ask."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edge.anchors.config import AnchorConfig
from edge.anchors.detect import Anchors, find_anchors
from edge.anchors.phrases import Phrases, load_phrases
from edge.anchors.signals import SIGNALS, signal_names

sys.path.insert(0, str(Path(__file__).parents[2] / "anchors"))  # hostile texts, labels and scores

Seen = list[tuple[str, str]]


@pytest.fixture(scope="session")
def config() -> AnchorConfig:
    return AnchorConfig.load()


@pytest.fixture(scope="session")
def phrases() -> Phrases:
    return load_phrases()


@pytest.fixture(scope="session")
def anchors_of(config: AnchorConfig, phrases: Phrases) -> Callable[[str], Anchors]:
    return lambda text: find_anchors(text, config, phrases)


@pytest.fixture(scope="session")
def seen(anchors_of: Callable[[str], Anchors]) -> Callable[[str, str], list[str]]:
    """seen(text, "numbering") -> what stands at the places that this signal found."""

    def places(text: str, signal: str) -> list[str]:
        found = anchors_of(text).places[SIGNALS.index(signal)]
        return [text[begin:end] for begin, end in zip(found.positions, found.ends, strict=True)]

    return places


@pytest.fixture(scope="session")
def headings(anchors_of: Callable[[str], Anchors]) -> Callable[[str], list[tuple[int, str]]]:
    """headings(text) -> level and text of each anchor."""

    def found(text: str) -> list[tuple[int, str]]:
        anchors = anchors_of(text)
        assert all(signal_names(int(mask)) for mask in anchors.signals)
        rows = zip(anchors.levels, anchors.positions, anchors.ends, strict=True)
        return [(int(level), text[begin:end]) for level, begin, end in rows]

    return found
