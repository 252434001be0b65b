"""A package of a tiny model. Owns: build_tiny."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edge.progress import Progress
from engines.build import BuildReport, BuildRequest, build_package

TOKENS = 200  # of text for the verdicts


def build_tiny(
    model: Path, out: Path, tier: str = "int4", target: str = "cpu", progress: Progress | None = None, **more: Any
) -> BuildReport:
    # Random weights give near-flat logits, so the verdicts' limits say little here; tests of the engine have their own.
    asked = {"model_name": str(model), "verify_tokens": TOKENS} | more
    return build_package(BuildRequest(model, tier=tier, target=target, out=out, **asked), progress)
