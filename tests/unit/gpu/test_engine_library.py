"""Which TensorRT an import would load, found without importing it, as wheels and as each JetPack lays it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edge.engine_library import LibraryFound, NoLibrary, find_library

# dpkg's list on JetPack 6.2: the version has the build and the CUDA that the module's own leaves out.
JETPACK_6 = """Package: libnvinfer10
Status: install ok installed
Version: 10.3.0.30-1+cuda12.5
Description: NVIDIA TensorRT runtime library
 Package: python3-libnvinfer

Package: python3-libnvinfer
Status: install ok installed
Priority: optional
Architecture: arm64
Version: 10.3.0.30-1+cuda12.5
Depends: python3 (>= 3.10), libnvinfer10 (= 10.3.0.30-1+cuda12.5)

"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of this Python with packages in it."""
    folder = tmp_path / "site"
    folder.mkdir()
    standard = [path for path in sys.path if "-packages" not in path]
    monkeypatch.setattr(sys, "path", [str(folder), *standard])
    for name in [name for name in sys.modules if name.split(".")[0] in ("tensorrt", "tensorrt_rtx")]:
        monkeypatch.delitem(sys.modules, name)
    return folder


@pytest.fixture
def no_dpkg(tmp_path: Path) -> Path:
    return tmp_path / "nothing"


def add_module(site: Path, name: str, text: str = "raise SystemExit('imported')\n") -> None:
    (site / name).mkdir()
    (site / name / "__init__.py").write_text(text)


def add_distribution(site: Path, name: str, version: str) -> None:
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_nothing_installed_is_said_with_the_command(site: Path, no_dpkg: Path) -> None:
    found = find_library("tensorrt-rtx", no_dpkg)
    assert found == NoLibrary(
        f"TensorRT-RTX is not installed for {sys.executable}",
        "Install it (x86-64, Python 3.11 or newer): ./install.sh --with rtx, or pip install tensorrt-rtx-cu13",
    )
    none = find_library("tensorrt", no_dpkg)
    assert isinstance(none, NoLibrary) and none.remedy.startswith("On a Jetson: sudo apt-get install python3-libnvinfer, ")


@pytest.mark.parametrize(
    ("kind", "module", "distribution", "version", "found"),
    [
        ("tensorrt-rtx", "tensorrt_rtx", "tensorrt_rtx_cu13_bindings", "1.7.1.116", ("1.7.1.116", 13)),
        ("tensorrt", "tensorrt", "tensorrt_cu13_bindings", "10.16.1.11", ("10.16.1.11", 13)),
        ("tensorrt", "tensorrt", "tensorrt_cu12_bindings", "10.3.0.post1", ("10.3.0", 12)),
        ("tensorrt", "tensorrt", "tensorrt", "10.14.1.31", ("10.14.1.31", None)),  # a wheel of NVIDIA's archive
    ],
)
def test_a_wheel_tells_its_version_and_its_cuda(
    site: Path, no_dpkg: Path, kind: str, module: str, distribution: str, version: str, found: tuple[str, int | None]
) -> None:
    add_module(site, module)
    add_distribution(site, distribution, version)
    assert find_library(kind, no_dpkg) == LibraryFound(kind, *found)  # type: ignore[arg-type]


def test_stubs_are_no_library(site: Path, no_dpkg: Path) -> None:
    for name in ("tensorrt", "tensorrt_bindings"):
        (site / name).mkdir()
        (site / name / "__init__.pyi").write_text("__version__: str\n")
    add_distribution(site, "tensorrt_stubs", "10.13.0.35.1")
    assert isinstance(find_library("tensorrt", no_dpkg), NoLibrary)


def test_on_a_jetson_debian_names_the_build_and_the_cuda(site: Path, tmp_path: Path) -> None:
    add_module(site, "tensorrt")
    add_distribution(site, "tensorrt", "10.3.0")
    status = tmp_path / "status"
    status.write_text(JETPACK_6)
    assert find_library("tensorrt", status) == LibraryFound("tensorrt", "10.3.0.30", 12)


def test_a_wheel_in_the_environment_comes_before_debians(site: Path, tmp_path: Path) -> None:
    add_module(site, "tensorrt")
    add_distribution(site, "tensorrt_cu13_bindings", "10.16.1.11")
    status = tmp_path / "status"
    status.write_text(JETPACK_6)
    assert find_library("tensorrt", status) == LibraryFound("tensorrt", "10.16.1.11", 13)


def test_an_environment_that_does_not_see_debians_is_told_so(site: Path, tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text(JETPACK_6)
    assert find_library("tensorrt", status) == NoLibrary(
        f"TensorRT 10.3.0.30 belongs to the system's Python, and {sys.executable} does not see it",
        "Make its environment with --system-site-packages, as ./install.sh does",
    )


@pytest.mark.parametrize(
    "text", ["", "Package: libc6\n", JETPACK_6.replace("ok installed", "ok config-files"), JETPACK_6.replace("-1+cuda12.5", "")]
)
def test_debians_list_without_an_installed_package_says_nothing(site: Path, tmp_path: Path, text: str) -> None:
    status = tmp_path / "status"
    status.write_text(text)
    found = find_library("tensorrt", status)
    assert isinstance(found, NoLibrary) and "is not installed" in found.reason


def test_a_copied_module_tells_its_version_itself(site: Path, no_dpkg: Path) -> None:
    add_module(site, "tensorrt", 'import nothing\n\n__version__ = "10.3.0"\n')
    assert find_library("tensorrt", no_dpkg) == LibraryFound("tensorrt", "10.3.0", None)


def test_a_module_without_a_version_is_not_trusted(site: Path, no_dpkg: Path) -> None:
    add_module(site, "tensorrt", "__version__ = compute()\n")
    found = find_library("tensorrt", no_dpkg)
    assert isinstance(found, NoLibrary) and found.reason.endswith("tensorrt/__init__.py: nothing tells its version")


def test_the_installed_library_is_what_an_import_gives() -> None:
    library = pytest.importorskip("tensorrt_rtx", reason="needs the rtx extra: tensorrt-rtx-cu13")
    found = find_library("tensorrt-rtx")
    assert isinstance(found, LibraryFound) and found.version == library.__version__
