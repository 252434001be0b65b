"""Tiny models for every test of this folder. They are written once a run and shared: do not change the files."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # so that tests here may say `from synthetic import VARIANTS`

from edge_process import Edge
from family_models import write_family_gguf
from synthetic import VARIANTS, TinyModel, write_tiny

if TYPE_CHECKING:
    from built_engine import Built
    from finish_board import Board


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str | TinyModel], Path]:
    """tiny_gguf("llama"), tiny_gguf("family qwen2") or tiny_gguf(replace(LLAMA, layers=1)) -> path of its GGUF file."""
    pytest.importorskip("gguf", reason="needs the build extra: gguf")
    folder = tmp_path_factory.mktemp("tiny")
    written: list[tuple[TinyModel, Path]] = []  # a TinyModel holds a dict, so it cannot be a key

    def path_of(model: str | TinyModel) -> Path:
        if isinstance(model, str) and model.startswith("family "):
            path = folder / f"{model}.gguf"
            return path if path.exists() else write_family_gguf(model.removeprefix("family "), path, "Q4_1")
        chosen = VARIANTS[model] if isinstance(model, str) else model
        for known, path in written:
            if known == chosen:
                return path
        name = model if isinstance(model, str) else f"tiny_{len(written)}"
        written_path = write_tiny(folder / f"{name}.gguf", chosen)
        written.append((chosen, written_path))
        return written_path

    return path_of


@pytest.fixture(scope="session")
def edge(edge_command: list[str]) -> Edge:
    return Edge(edge_command)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose name has a space and letters beyond ASCII."""
    path = tmp_path_factory.mktemp("packages") / "Rifé 日本"
    path.mkdir()
    return path


@pytest.fixture(scope="session")
def chat_package(edge: Edge, folder: Path, tiny_gguf: Callable[[str], Path]) -> Path:
    """A llama with a chat template, int8, built by the command."""
    return _build(edge, folder, tiny_gguf("llama_published"), "chat")


@pytest.fixture(scope="session")
def base_package(edge: Edge, folder: Path, tiny_gguf: Callable[[str], Path]) -> Path:
    """A gemma3 without a chat template, int8, built by the command."""
    return _build(edge, folder, tiny_gguf("gemma_published"), "base")


def _build(edge: Edge, folder: Path, gguf: Path, name: str) -> Path:
    pytest.importorskip("onnxruntime", reason="needs the build extra: onnxruntime")
    out = folder / f"{name}.edge"
    edge.succeed("build", gguf, "--tier", "int8", "--target", "cpu", "--verify-tokens", "64", "-o", out)
    return out


@pytest.fixture(scope="session")
def build(
    tiny_gguf: Callable[[str | TinyModel], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str | TinyModel, str], Built]:
    """build(model, tier) -> Built, each pair once a run."""
    from built_engine import build_engine

    known: dict[str, Built] = {}

    def built(model: str | TinyModel, tier: str) -> Built:
        key = f"{model} {tier}"
        if key not in known:
            known[key] = build_engine(tiny_gguf(model), tier, tmp_path_factory.mktemp("engine"))
        return known[key]

    return built


@pytest.fixture(scope="session")
def package(tiny_gguf: Callable[[str | TinyModel], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built package; tests that change it copy it first."""
    from built_package import build_tiny

    out = tmp_path_factory.mktemp("built") / "tiny.edge"
    build_tiny(tiny_gguf("llama_published"), out)
    return out


@pytest.fixture(scope="session")
def board_build(tiny_gguf: Callable[[str | TinyModel], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package for a board, without its plan. Do not change it."""
    from built_package import build_tiny

    out = tmp_path_factory.mktemp("board") / "model.edge"
    build_tiny(tiny_gguf("gemma"), out, target="orin-nx-16", context=64)
    return out


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Board:
    """What stands in for the board; its package is a copy of `board_build`."""
    from finish_board import Board

    from edge.machine import Machine
    from engines.tensorrt import finish

    made = Board()
    monkeypatch.setattr(finish, "find_machine", lambda: Machine(None, made.gpu, "orin-nx-16", True))
    monkeypatch.setattr(finish, "need_library", made.need_library)
    monkeypatch.setattr(finish, "build_plan", made.build_plan)
    return made
