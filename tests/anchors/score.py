"""Precision and recall of signals against labels. Owns: how a hit counts. Needs: edge.anchors. Never: labels, printing."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from labels import Labelled

from edge.anchors.config import AnchorConfig
from edge.anchors.detect import Anchors, find_anchors
from edge.anchors.phrases import load_phrases
from edge.anchors.signals import DEEPEST, SIGNALS


@dataclass(slots=True)
class Score:
    """Counts of one signal."""

    hits: int = 0
    found: int = 0
    labels: int = 0

    def add(self, found: np.ndarray, labels: np.ndarray) -> None:
        self.hits += int(np.isin(labels, found).sum())
        self.found += len(found)
        self.labels += len(labels)

    @property
    def precision(self) -> float | None:
        return self.hits / self.found if self.found else None

    @property
    def recall(self) -> float:
        return self.hits / self.labels if self.labels else 0.0

    @property
    def f1(self) -> float:
        precision = self.precision or 0.0
        return 2 * precision * self.recall / (precision + self.recall) if precision + self.recall else 0.0


class Scores:
    """Of all signals, and of the anchors that come of them, over many texts."""

    def __init__(self) -> None:
        self.by_name: dict[str, Score] = defaultdict(Score)

    def add(self, labelled: Labelled, anchors: Anchors) -> None:
        """A hit is a signal at the very character at which a heading begins; a row of statistics allows a paragraph off."""
        labels = np.array(labelled.headings, np.int64)
        for name, places in zip(SIGNALS, anchors.places, strict=True):
            self.by_name[name].add(places.positions, labels)
        blocks = anchors.marks["block"]
        if len(blocks):
            breaks = anchors.places[SIGNALS.index("statistics")].positions
            index = np.searchsorted(blocks, labels)
            near = [blocks[np.clip(index + shift, 0, len(blocks) - 1)] for shift in (-1, 0, 1)]
            score = self.by_name["statistics, a paragraph off"]
            hit = np.isin(np.stack(near), breaks).any(axis=0)
            score.hits += min(int(hit.sum()), len(breaks))
            score.found += len(breaks)
            score.labels += len(labels)
        for name, marks in anchors.marks.items():
            self.by_name[f"mark {name}"].add(marks, labels)
        self.by_name["headings"].add(anchors.positions[anchors.levels < DEEPEST], labels)
        self.by_name["all anchors"].add(anchors.positions, labels)


def anchors_of(labelled: Labelled) -> Anchors:
    """With the shipped numbers and phrases."""
    return find_anchors(labelled.text, AnchorConfig.load(), load_phrases())
