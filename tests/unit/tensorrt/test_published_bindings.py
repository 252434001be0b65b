"""Code that calls TensorRT is checked by types against every version that it may meet, none of which can run here.

10.3 is JetPack 6's, 10.16 that of JetPack 7.2 (there 10.16.2), 11.4 the newest on the package index.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from published_bindings import Bindings, NotAvailable, write_stubs

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="needs wheels of x86-64")
pytest.importorskip("pybind11_stubgen", reason="needs the dev extra: pybind11-stubgen")
pytest.importorskip("mypy", reason="needs the dev extra: mypy")

ROOT = Path(__file__).parents[3]

PUBLISHED = [
    Bindings("tensorrt-cu12-bindings", "10.3.0", newest_python=(3, 12)),
    Bindings("tensorrt-cu13-bindings", "10.16.1.11"),
    Bindings("tensorrt-cu13-bindings", "11.4.0.106"),
]

CONFIG = """
[mypy]
strict = true
explicit_package_bases = true
warn_return_any = false
[mypy-tensorrt.*]
ignore_errors = true
[mypy-tensorrt_rtx.*,gguf.*,onnx.*,onnxruntime.*,tokenizers.*,huggingface_hub.*]
ignore_missing_imports = true
follow_imports = skip
"""

WRONG = """
import tensorrt as trt

def wrong(builder: trt.Builder, config: trt.IBuilderConfig) -> None:
    builder.build_a_network()
    config.set_memory_pool_limit(trt.MemoryPoolType.NO_SUCH_POOL, 1)
    config.set_timing_cache("text", False)
    builder.create_network(flags=1, more=2)
"""


@pytest.fixture(scope="module", params=PUBLISHED, ids=lambda bindings: bindings.version)
def stubs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, is_whole: bool) -> Path:
    bindings: Bindings = request.param
    if bindings.newest_python is not None and sys.version_info[:2] > bindings.newest_python:
        pytest.skip(
            f"needs Python {'.'.join(map(str, bindings.newest_python))} or older: {bindings.version} has no newer wheel"
        )
    try:
        return write_stubs(bindings, tmp_path_factory.mktemp("bindings"))
    except NotAvailable as error:
        if is_whole:
            raise
        pytest.skip(str(error))


def checked(stubs: Path, *files: Path) -> tuple[int, str]:
    """mypy's exit code and words."""
    config = stubs.parent / "mypy.ini"
    config.write_text(CONFIG)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--config-file",
            str(config),
            "--cache-dir",
            str(stubs.parent / "cache"),
            *map(str, files),
        ],
        env={**os.environ, "MYPYPATH": str(stubs)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_our_calls_fit(stubs: Path) -> None:
    users = [path for path in (ROOT / "engines/tensorrt").rglob("*.py") if "import trt\n" in path.read_text(encoding="utf-8")]
    assert len(users) > 3
    assert checked(stubs, *users)[0] == 0, checked(stubs, *users)[1]


def test_calls_that_do_not_fit_would_be_seen(stubs: Path, tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(WRONG)
    code, words = checked(stubs, path)
    assert code == 1
    for line in (5, 6, 7, 8):
        assert f"wrong.py:{line}: error:" in words
