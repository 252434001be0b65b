"""The text that builds read. Owns: its name and place. Needs: nothing. Never: tokens."""

from __future__ import annotations

from pathlib import Path

NAME = "factbook"


def read_build_text() -> str:
    """Some 70,000 characters of Markdown; texts/README.md says where they come from."""
    return (Path(__file__).parent / "texts" / f"{NAME}.txt").read_text("utf-8")
