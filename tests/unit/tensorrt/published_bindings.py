"""Type stubs of published TensorRT bindings. Owns: fetching a wheel, importing it without TensorRT, its stubs. Needs: pip, a C
compiler, pybind11-stubgen. Never: calls into them.

A bindings wheel of some MB is on the package index; the library itself, of GBs, is not. The module asks it for a few C
functions when it is loaded, so a stand-in with those lets it be imported, and what it defines be read.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

_SYMBOLS = (
    "createInferBuilder_INTERNAL",
    "createInferRefitter_INTERNAL",
    "createInferRuntime_INTERNAL",
    "createNvOnnxParserRefitter_INTERNAL",
    "createNvOnnxParser_INTERNAL",
    "getBuilderPluginRegistry",
    "getNvOnnxParserVersion",
    "getPluginRegistry",
    "initLibNvInferPlugins",
)
_LIBRARIES = ("nvinfer", "nvonnxparser", "nvinfer_plugin")


@dataclass(frozen=True)
class Bindings:
    """A wheel of the package index."""

    distribution: str
    version: str
    newest_python: tuple[int, int] | None = None  # that it has a wheel for; None: no Python is too new for it

    @property
    def major(self) -> str:
        return self.version.partition(".")[0]


class NotAvailable(Exception):
    """What a machine would need for this."""


def write_stubs(bindings: Bindings, folder: Path) -> Path:
    """A folder for MYPYPATH with the stubs of module `tensorrt`. NotAvailable where they cannot be made here."""
    package = _unpack(_fetch(bindings, folder), folder / "package")
    libraries = _stand_in(bindings, folder)
    stubs = folder / "stubs"
    done = subprocess.run(
        [sys.executable, "-m", "pybind11_stubgen", "tensorrt", "-o", str(stubs), "--ignore-all-errors"],
        env={**os.environ, "LD_LIBRARY_PATH": str(libraries), "PYTHONPATH": str(package)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for path in stubs.rglob("*.pyi"):
        path.write_text(_valid(path.read_text(encoding="utf-8")), encoding="utf-8")
    return stubs


def _fetch(bindings: Bindings, folder: Path) -> Path:
    wanted = f"{bindings.distribution}=={bindings.version}"
    words = ["download", "--quiet", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--dest", str(folder)]
    done = subprocess.run([sys.executable, "-m", "pip", *words, wanted], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotAvailable(f"needs {wanted} for this Python from the package index")
    return next(folder.glob("*.whl"))


def _unpack(wheel: Path, folder: Path) -> Path:
    """The module by the name under which code imports it: the wheel calls it tensorrt_bindings."""
    with zipfile.ZipFile(wheel) as archive:
        for name in ("__init__.py", "tensorrt.so"):
            path = folder / "tensorrt" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(f"tensorrt_bindings/{name}"))
    return folder


def _stand_in(bindings: Bindings, folder: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NotAvailable("needs a C compiler")
    source = folder / "stand_in.c"
    source.write_text("".join(f"void *{symbol}(void) {{ return 0; }}\n" for symbol in _SYMBOLS))
    libraries = folder / "libraries"
    libraries.mkdir()
    for name in _LIBRARIES:
        soname = f"lib{name}.so.{bindings.major}"
        words = ["-shared", "-fPIC", f"-Wl,-soname,{soname}", "-o", str(libraries / soname), str(source)]
        subprocess.run([compiler, *words], check=True)
    return libraries


def _valid(stub: str) -> str:
    """`stub` with signatures that are no Python (a parameter `in`, defaults before none) replaced by one that takes all."""
    lines = stub.split("\n")
    while (wrong := _wrong_line("\n".join(lines))) is not None:
        definition = re.match(r"( *def \w+)\(", lines[wrong - 1])
        assert definition is not None, lines[wrong - 1]
        lines[wrong - 1] = f"{definition[1]}(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:"
    return "\n".join(lines)


def _wrong_line(text: str) -> int | None:
    try:
        ast.parse(text)
    except SyntaxError as error:
        return error.lineno
    return None
