"""Fixtures that several areas share: the real models, by their catalog names, in the normal cache folder."""

from __future__ import annotations

import os
import platform
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

import edge
from edge.env import without_telemetry
from edge.errors import PullError
from edge.progress import SilentProgress
from edge.pull import pull_model

if TYPE_CHECKING:
    from engines.build_report import BuildReport

without_telemetry()  # tests import ONNX Runtime themselves, too

settings.register_profile("untimed", deadline=None)  # the machine is shared: a slow example is no failure
settings.register_profile("few", settings.get_profile("untimed"), max_examples=15)  # tests/run.sh, second and later Pythons
settings.load_profile("untimed")

VERIFY_TOKENS = 1100  # more than a window of the text, and twice the window of Gemma
FEW_TOKENS = 128


def _pulled(name: str) -> Path:
    try:
        return pull_model(name, SilentProgress()).path
    except PullError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"needs the model {name}: {error}")


@pytest.fixture(scope="session")
def edge_command() -> list[str]:
    """The command `edge` as a process of its own, with the code that this process has: a checkout in the current folder,
    without its native core, must not come first."""
    code = (
        f"import sys; sys.path[0] = {str(Path(edge.__file__).parents[1])!r}; from edge.cli.main import main; main(sys.argv[1:])"
    )
    return [sys.executable, "-c", code]


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct, Q4_1: llama architecture, chat template."""
    return _pulled("smollm2-135m-instruct")


@pytest.fixture(scope="session")
def gemma3_gguf() -> Path:
    """Gemma-3-270M, Q4_K_M: gemma3 architecture, sliding windows, no chat template."""
    return _pulled("gemma-3-270m")


@pytest.fixture(scope="session")
def smollm2_package(smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 as an int4 package for the cpu target, proved on little text. Do not change it."""
    return _built(smollm2_gguf, "smollm2-135m-instruct", tmp_path_factory).path


@pytest.fixture(scope="session")
def gemma3_package(gemma3_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gemma-3-270M as an int4 package for the cpu target; its text crosses the sliding window. Do not change it."""
    return _built(gemma3_gguf, "gemma-3-270m", tmp_path_factory).path


@pytest.fixture(scope="session")
def smollm2_a10_build(rtx: None, smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> BuildReport:
    """SmolLM2 as an int4 package for the a10 target, its plan by TensorRT-RTX. Do not change it."""
    return _built(smollm2_gguf, "smollm2-135m-instruct", tmp_path_factory, target="a10")


@pytest.fixture(scope="session")
def gemma3_a10_build(rtx: None, gemma3_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> BuildReport:
    """Gemma-3-270M as an int4 package for the a10 target, its plan by TensorRT-RTX. Do not change it."""
    return _built(gemma3_gguf, "gemma-3-270m", tmp_path_factory, target="a10")


@pytest.fixture(scope="session", params=["int8", "fp16"])
def smollm2_wide_a10_build(
    rtx: None, smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> BuildReport:
    """SmolLM2 in the tiers of more bits for the a10 target, proved on as much text as a slow reference allows."""
    return _built(smollm2_gguf, "smollm2-135m-instruct", tmp_path_factory, request.param, "a10", tokens=FEW_TOKENS)


@pytest.fixture(scope="session")
def is_whole() -> bool:
    """Whether CI installed here all that any test needs, so that a test without it must fail rather than skip."""
    is_ours = platform.machine() == "x86_64" and sys.version_info >= (3, 11) and find_spec("onnxruntime") is not None
    return os.environ.get("CI") == "true" and is_ours


@pytest.fixture(scope="session")
def rtx(is_whole: bool) -> None:
    """TensorRT-RTX."""
    if not is_whole:
        pytest.importorskip("tensorrt_rtx", reason="needs the rtx extra: tensorrt-rtx-cu13")
    import_module("tensorrt_rtx")


def _built(
    model: Path,
    name: str,
    folders: pytest.TempPathFactory,
    tier: str = "int4",
    target: str = "cpu",
    tokens: int = VERIFY_TOKENS,
) -> BuildReport:
    pytest.importorskip("edge._core", reason="needs the native core: pip install .")
    pytest.importorskip("onnxruntime", reason="needs the build extra")
    from engines.build import BuildRequest, build_package

    out = folders.mktemp("package") / f"{name}.edge"
    return build_package(BuildRequest(model, name, tier, target, out, verify_tokens=tokens))


# What is made once a session and takes minutes, the slowest first: tests that share one run in the same process.
_SLOW_FIXTURES = ("gemma3_a10_build", "smollm2_a10_build", "smollm2_wide_a10_build", "gemma3_package", "smollm2_package")


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Of long text its length: pytest puts the name of a test into the environment, where a process that is started with 128 kB
    fails."""
    return f"{argname}-{len(val)}" if isinstance(val, (str, bytes)) and len(val) > 200 else None


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in this hook, too
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Who asks for a real model is marked `real`, so that `-m "not real"` needs no network; who asks for what only the
    build extra can make is marked `build`. Processes side by side (pytest-xdist) share files, and what is slow to make."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):  # and those that a parameter names
            named = {value for value in item.callspec.params.values() if isinstance(value, str)}
            fixtures |= named & {*_SLOW_FIXTURES, "smollm2_gguf", "gemma3_gguf"}
        if {"smollm2_gguf", "gemma3_gguf"} & fixtures:
            item.add_marker(pytest.mark.real)
        if {"tiny_gguf", "smollm2_package", "gemma3_package", "rtx"} & fixtures:
            item.add_marker(pytest.mark.build)
        place = item.path.parent if item.path.parent.name == "install" else item.path  # one install.sh at a time
        item.add_marker(pytest.mark.xdist_group(next((name for name in _SLOW_FIXTURES if name in fixtures), str(place))))
