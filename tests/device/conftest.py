"""What only a device can show. On a Jetson, or beside a card, with a package that was built for it:

    .venv/bin/pytest tests/device --package NAME.edge

Without a GPU every test here is skipped and says so; none counts as passed where it did not run.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from edge.engine_library import NoLibrary, find_library
from edge.gpu import GpuFound, NoGpu, probe_gpu
from edge.package import Package


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "A package that `edge build` made for this device; it is copied, not changed."
    parser.addoption("--package", type=Path, help=text)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.device)


@pytest.fixture(scope="session")
def gpu() -> GpuFound:
    found = probe_gpu()
    if isinstance(found, NoGpu):
        pytest.skip(f"needs a GPU: {found.reason}")
    return found


@pytest.fixture(scope="session")
def package(gpu: GpuFound, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Package:
    """A copy of the package of --package, for a GPU of this kind, whose library is installed."""
    given = request.config.getoption("--package", default=None)
    if given is None:
        pytest.skip("needs a package built for this device: --package NAME.edge")
    copy = Package.open(Path(shutil.copytree(given, tmp_path_factory.mktemp("device") / "model.edge")), force=True)
    engine = copy.manifest.engine
    if engine is None or engine.sm != gpu.first.sm:
        pytest.skip(f"needs a package for sm {gpu.first.sm}, {given} is for {copy.manifest.target}")
    library = find_library(engine.kind)
    if isinstance(library, NoLibrary):
        pytest.skip(f"needs its library: {library.reason}")
    return copy
