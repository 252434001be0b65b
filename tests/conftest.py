"""Fixtures that several areas share: the real models, by their catalog names, in the normal cache folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edge.errors import PullError
from edge.progress import SilentProgress
from edge.pull import pull_model


def _pulled(name: str) -> Path:
    try:
        return pull_model(name, SilentProgress()).path
    except PullError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"needs the model {name}: {error}")


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct, Q4_1: llama architecture, chat template."""
    return _pulled("smollm2-135m-instruct")


@pytest.fixture(scope="session")
def gemma3_gguf() -> Path:
    """Gemma-3-270M, Q4_K_M: gemma3 architecture, sliding windows, no chat template."""
    return _pulled("gemma-3-270m")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Who asks for a real model is marked `real`, so that `-m "not real"` needs no network."""
    for item in items:
        if {"smollm2_gguf", "gemma3_gguf"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.real)
