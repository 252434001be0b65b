"""A package of a tiny model. Owns: build_tiny."""

from __future__ import annotations

from pathlib import Path

from engines.build import BuildReport, build_package

TOKENS = 200  # of text for the verdicts


def build_tiny(model: Path, out: Path, tier: str = "int4", **more: bool) -> BuildReport:
    # Random weights give near-flat logits, so the verdicts' limits say little here; tests of the engine have their own.
    return build_package(model, model_name=str(model), tier=tier, target="cpu", out=out, verify_tokens=TOKENS, **more)
