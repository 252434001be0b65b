"""Numbers of anchors and zones, read once. Owns: AnchorConfig. Needs: yaml/runtime/anchors.yaml. Never: detection."""

from __future__ import annotations

from dataclasses import dataclass, fields

from edge.yamls import load_yaml, yaml_root


@dataclass(frozen=True, slots=True)
class Weights:
    """What each signal is worth, 0 to 1. In the order of signals.SIGNALS."""

    markdown: float
    html: float
    turn: float
    numbering: float
    wording: float
    title: float
    page: float
    statistics: float

    def __post_init__(self) -> None:
        for name, weight in zip((field.name for field in fields(self)), self.values, strict=True):
            if not 0.0 <= weight <= 1.0:
                raise ValueError(f"{name} must be 0 to 1")

    @property
    def values(self) -> tuple[float, ...]:
        return (self.markdown, self.html, self.turn, self.numbering, self.wording, self.title, self.page, self.statistics)


@dataclass(frozen=True, slots=True)
class AnchorConfig:
    """yaml/runtime/anchors.yaml; each key is explained there."""

    weights: Weights
    least: float
    marked_headings: int
    section_chars: int
    depth_factor: float
    depth_words: int
    paragraph_words: int
    anchor_window: int
    section_window: int

    def __post_init__(self) -> None:
        if not 0.0 < self.least <= 1.0:
            raise ValueError("least must be above 0 and at most 1")
        for name in ("marked_headings", "section_chars", "depth_words", "paragraph_words"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        for name in ("anchor_window", "section_window"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0")

    @classmethod
    def load(cls) -> AnchorConfig:
        """The shipped file. ConfigError where somebody broke it."""
        return load_yaml(yaml_root() / "runtime" / "anchors.yaml", cls)
