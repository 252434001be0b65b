"""Exports that fail and files that are damaged: one line, and nothing half-made."""

from __future__ import annotations

import builtins
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic import LLAMA, write_hollow

from edge.errors import BuildError, EdgeError, RequestError, SourceError
from engines.portable.export import write_portable
from engines.portable.reader import read_portable
from engines.reference.ort import OrtReference
from engines.sources.base import open_source

pytestmark = pytest.mark.build
onnx = pytest.importorskip("onnx", reason="needs the build extra: onnx")
pytest.importorskip("onnxruntime", reason="needs the build extra: onnxruntime (Python 3.11 or newer)")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def exported(tiny_gguf: Callable[..., Path], tmp_path: Path) -> Path:
    out = tmp_path / "Rifé model" / "a b.onnx"
    out.parent.mkdir()
    write_portable(open_source(tiny_gguf("llama")), None, out)
    return out


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_export_stopped_in_the_middle_leaves_nothing_under_its_name(tmp_path: Path, number: signal.Signals) -> None:
    from dataclasses import replace

    gguf = write_hollow(tmp_path / "big.gguf", replace(LLAMA, hidden=2048, feed_forward=8192, heads=16, head_dim=128, layers=4))
    folder = tmp_path / "out"
    folder.mkdir()
    code = f"""
from pathlib import Path
from engines.sources.base import open_source
from engines.portable.export import write_portable
write_portable(open_source(Path({str(gguf)!r})), None, Path({str(folder / "m.onnx")!r}))
"""
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.DEVNULL)
    data = folder / ".m.onnx.data.partial"
    deadline = time.monotonic() + 60
    while not (data.exists() and data.stat().st_size > 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() is None
    process.send_signal(number)
    process.wait(60)
    left = [path.name for path in folder.iterdir()]
    assert left == ([] if number == signal.SIGINT else [".m.onnx.data.partial"])


def test_a_source_that_fails_in_the_middle_leaves_nothing(tiny_gguf: Callable[..., Path], tmp_path: Path) -> None:
    source = open_source(tiny_gguf("llama"))

    class Failing:
        spec, metadata = source.spec, source.metadata
        tensor_names, shape, read = source.tensor_names, source.shape, source.read

        def read_rows(self, name: str, begin: int, end: int) -> object:
            if name.startswith("layers.2.ffn") and end > 1:
                raise SourceError("the file ends early")
            return source.read_rows(name, begin, end)

    with pytest.raises(SourceError, match="ends early"):
        write_portable(Failing(), None, tmp_path / "m.onnx")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_names_with_spaces_and_accents_work_from_any_folder(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(exported.parent)
    relative = Path(exported.name)
    onnx.checker.check_model(str(relative), full_check=True)
    assert read_portable(relative).weight("final_norm.weight").shape == (64,)
    assert next(OrtReference(relative, 1).logits([1, 2])).shape == (2, 300)


def test_an_export_may_be_moved_with_its_data(exported: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    exported.parent.rename(moved)
    assert next(OrtReference(moved / exported.name, 1).logits([1, 2])).shape == (2, 300)


def test_an_unknown_dtype_is_refused(tiny_gguf: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="float32 or float16"):
        write_portable(open_source(tiny_gguf("llama")), None, tmp_path / "m.onnx", dtype="bfloat16")


def damage_graph(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


def damage_data(path: Path) -> None:
    data = path.with_name(f"{path.name}.data")
    data.write_bytes(data.read_bytes()[:5000])


def remove_data(path: Path) -> None:
    path.with_name(f"{path.name}.data").unlink()


def remove_graph(path: Path) -> None:
    path.unlink()


def strip_metadata(path: Path) -> None:
    model = onnx.load(path, load_external_data=False)
    del model.metadata_props[:]
    path.write_bytes(model.SerializeToString())


def damage_metadata(path: Path) -> None:
    model = onnx.load(path, load_external_data=False)
    for entry in model.metadata_props:
        if entry.key == "edge_zero.spec":
            entry.value = entry.value.replace("hidden_size", "hidden")
    path.write_bytes(model.SerializeToString())


def point_outside(path: Path) -> None:
    (path.parent.parent / "secret").write_bytes(path.with_name(f"{path.name}.data").read_bytes())
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../secret"
    path.write_bytes(model.SerializeToString())


DAMAGES = [
    (damage_graph, "not an ONNX file"),
    (damage_data, "holds 5000 bytes"),
    (remove_data, "cannot be read"),
    (remove_graph, "cannot be read"),
    (strip_metadata, "holds no EdgeZero export"),
    (damage_metadata, "metadata are damaged"),
    (point_outside, "not inside the model's folder"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
@pytest.mark.parametrize("opened", [read_portable, lambda path: OrtReference(path, 1)])
def test_a_damaged_export_is_one_line(
    exported: Path, damage: Callable[[Path], None], message: str, opened: Callable[[Path], object]
) -> None:
    damage(exported)
    with pytest.raises(EdgeError, match=message) as caught:
        opened(exported)
    assert exported.name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_initializers_that_do_not_match_the_report_are_refused(exported: Path) -> None:
    model = onnx.load(exported, load_external_data=False)
    norm = next(tensor for tensor in model.graph.initializer if tensor.name == "final_norm.weight")
    norm.dims[:] = [32, 2]
    exported.write_bytes(model.SerializeToString())
    with pytest.raises(SourceError, match=r"'final_norm\.weight' does not match"):
        read_portable(exported)


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_named_with_the_command_that_brings_it(
    exported: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: object) -> object:
        if name.split(".")[0] == package:
            raise ImportError(f"No module named {package!r}")
        return real(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(BuildError, match=r"\./install\.sh"):
        OrtReference(exported, 1)


def test_an_old_onnx_runtime_is_named(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxruntime.__version__", "1.23.2")
    with pytest.raises(BuildError, match=r"1\.32 or newer, here is 1\.23\.2.*Python 3\.11"):
        OrtReference(exported, 1)


def test_no_tokens_and_too_many_are_refused(exported: Path) -> None:
    reference = OrtReference(exported, 1)
    with pytest.raises(RequestError, match="no tokens"):
        next(reference.logits([]))
    with pytest.raises(RequestError, match="position 8 does not fit in a cache of 8"):
        list(reference.logits([1] * 9, chunk=3, max_context=8))


def test_the_graph_file_stays_small_whatever_the_weights(exported: Path) -> None:
    assert exported.stat().st_size < 200_000
    model = onnx.load(exported, load_external_data=False)
    assert max(len(tensor.raw_data) for tensor in model.graph.initializer) < 1024
