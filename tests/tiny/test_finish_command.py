"""`edge build --finish` as a user types it, with a driver and a TensorRT that are ours."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from edge_process import Edge
from finish_board import record_of, state_of

UNIT = Path(__file__).parents[1] / "unit"
sys.path.insert(0, str(UNIT / "gpu"))  # stand_in_driver

pytestmark = pytest.mark.build
pytest.importorskip("edge._core", reason="needs the native core: pip install .")
pytest.importorskip("onnxruntime", reason="needs the build extra: onnxruntime")


@pytest.fixture
def package(board_build: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(board_build, tmp_path / "model.edge"))


Stood = Callable[[str], dict[str, str]]


@pytest.fixture
def stood_in(tmp_path: Path) -> Stood:
    """The environment of a process on a Jetson: a driver that says Orin, and a TensorRT of a version that writes plans; both
    are ours."""
    from stand_in_driver import ORIN as DRIVER
    from stand_in_driver import compile_driver

    driver = tmp_path / "driver"
    driver.mkdir()
    compile_driver(driver, **DRIVER)
    text = (UNIT / "tensorrt" / "fake_tensorrt" / "tensorrt.py").read_text()

    def environment(version: str) -> dict[str, str]:
        library = tmp_path / version
        library.mkdir(exist_ok=True)
        (library / "tensorrt.py").write_text(text.replace('__version__ = "10.3.0"', f'__version__ = "{version}"'))
        return {"LD_LIBRARY_PATH": str(driver), "PYTHONPATH": str(library), "EDGE_CACHE": str(tmp_path / "cache")}

    return environment


def test_the_command_finishes_a_package_and_verify_opens_its_plan(
    edge: Edge, package: Path, stood_in: Stood, tmp_path: Path
) -> None:
    on_board = stood_in("10.16.2.10")
    done = edge.run("build", package, "--finish", "--ignore-budget", **on_board)
    assert done.returncode == 0, done.stderr
    assert "finished for Orin, sm 8.7" in done.stdout and "TensorRT 10.16.2.10" in done.stdout
    assert [path.name for path in (tmp_path / "cache/timing").iterdir()] == ["tensorrt-10.16.2.10-sm8.7.cache"]
    done = edge.run("verify", package, **on_board)
    assert "the plan, opened on this GPU, has the manifest's inputs, outputs and profiles" in done.stdout, done.stderr
    assert "no executor for TensorRT yet" in edge.refuse("run", package, "hello", "--force", **on_board)


def test_the_command_says_what_jetpack_6_waits_for(edge: Edge, package: Path, stood_in: Stood) -> None:
    before = state_of(package)
    line = edge.refuse("build", package, "--finish", **stood_in("10.3.0"))
    assert "with TensorRT 10.3.0 attention needs the plugin edge::PagedAttention" in line
    assert state_of(package) == before


def test_another_tensorrt_than_the_one_that_built_is_refused_with_the_command_that_mends_it(
    edge: Edge, package: Path, stood_in: Stood
) -> None:
    edge.succeed("build", package, "--finish", "--ignore-budget", **stood_in("10.16.2.10"))
    newer = stood_in("10.17.0.1")
    assert f"edge build {package} --finish --force" in edge.refuse("run", package, "hello", "--force", **newer)
    edge.succeed("build", package, "--finish", "--force", "--ignore-budget", **newer)
    plan = record_of(package).plan
    assert plan is not None and plan.version == "10.17.0.1"
