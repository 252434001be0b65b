"""Every family of models against transformers: its folder, its GGUF, the portable graph, the CPU engine, lowered graphs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from family_models import FAMILIES, FolderSource, read_prompts, write_family_folder, write_family_gguf

from calibration.tiers import load_tier
from edge.progress import SilentProgress
from engines.portable.export import write_portable
from engines.portable.reader import PortableModel, read_portable
from engines.reference.cpu_roundings import cpu_roundings, dense_weights
from engines.reference.numpy_forward import Roundings, Weights, forward
from engines.reference.ort import OrtGraph, OrtReference
from engines.sources.base import Source, open_source
from engines.tensorrt.lower import lower_graphs

pytestmark = pytest.mark.build
pytest.importorskip("gguf", reason="needs the build extra: gguf")

ROWS = 16


def plain_logits(source: Source, ids: list[int]) -> np.ndarray:
    weights: Callable[[str], np.ndarray] = cache(lambda name: source.read(name).to_float32())
    return forward(weights, source.spec, ids, range(len(ids) - ROWS, len(ids)))


def context_of(name: str, ids: list[int]) -> int | None:
    """For long-rope the limit that chooses the set of factors that transformers chose for the prompt."""
    return len(ids) if name.startswith("phi3") else None


@pytest.mark.parametrize("name", FAMILIES)
def test_a_folder_gives_the_logits_of_transformers(name: str) -> None:
    for ids, expected in read_prompts(name):
        found = plain_logits(FolderSource(name, context_of(name, ids)), ids)
        assert np.abs(found - expected).max() < 1e-4


@pytest.mark.parametrize("name", FAMILIES)
def test_a_folder_that_is_opened_gives_the_logits_of_transformers(name: str, tmp_path: Path) -> None:
    folder = write_family_folder(name, tmp_path / name)
    for ids, expected in read_prompts(name):
        found = plain_logits(open_source(folder, context_of(name, ids)), ids)
        assert np.abs(found[:, : expected.shape[1]] - expected).max() < 1e-4


@pytest.mark.parametrize("name", FAMILIES)
def test_a_gguf_gives_the_logits_of_transformers(name: str, tmp_path: Path) -> None:
    path = write_family_gguf(name, tmp_path / f"{name}.gguf")
    for ids, expected in read_prompts(name):
        source = open_source(path, context_of(name, ids))
        if name == "qwen2" and len(ids) > FolderSource(name).spec.group_windows[-1]:
            continue  # llama.cpp's converter writes no windows of Qwen's, and such a file cannot say them
        found = plain_logits(source, ids)
        assert np.abs(found - expected).max() < 1e-4


@pytest.mark.parametrize("name", FAMILIES)
def test_quantised_tensors_of_a_gguf_are_those_of_the_folder(name: str, tmp_path: Path) -> None:
    """Stacked, interleaved and scaled rows, read in runs that begin and end anywhere."""
    quantised, folder = open_source(write_family_gguf(name, tmp_path / "q8.gguf", "Q8_0")), FolderSource(name)
    assert quantised.tensor_names() == folder.tensor_names()
    for tensor in folder.tensor_names():
        expected, rows = folder.read(tensor).to_float32(), folder.shape(tensor)[0]
        first, second = quantised.read_rows(tensor, 0, rows // 3), quantised.read_rows(tensor, rows // 3, rows)
        found = np.concatenate([part.to_float32() for part in (first, second)])
        assert np.abs(found - expected).max() < 0.6 / 127 * np.abs(expected).max(), tensor
        exact = quantised.read_exact(tensor, 0, rows)
        assert np.abs(found - exact).max() <= (first.relative_error + 1e-7) * np.abs(exact).max(), tensor


@pytest.mark.parametrize("name", FAMILIES)
def test_the_portable_graph_gives_the_logits_of_transformers(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs the build extra: onnxruntime (Python 3.11 or newer)")
    for ids, expected in read_prompts(name):
        write_portable(FolderSource(name, context_of(name, ids)), None, tmp_path / "model.onnx")
        found = np.concatenate(list(OrtReference(tmp_path / "model.onnx", 2).logits(ids, chunk=7)))
        assert np.abs(found[-ROWS:] - expected).max() < 1e-4


@pytest.mark.parametrize("tier", ["fp16", "int8", "int4"])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_cpu_engine_gives_the_logits_of_its_arithmetic(name: str, tier: str, tmp_path: Path) -> None:
    """The engine against NumPy with the same int8 activations and fp16 pages, but float32 attention.

    Wherever one rounding falls otherwise, the next ones do: logits are then off by 1 to 4 % of their size (with fp16 weights
    by 0.03 to 0.2 %). So the engine may be off by what NumPy is off from itself with K and V changed by 0.03 %, half a step
    of fp16. It is off by 0.66 to 1.12 of that, further draws by 0.96 to 1.09; scores 3 % too large make it 1.24 to 2.1, a
    window of one less 1.8 to 30, one V that is lost in one layer 7 to 20.
    """
    pytest.importorskip("edge._core", reason="needs the native core: pip install .")
    from built_engine import build_engine_of

    for index, (ids, _) in enumerate(read_prompts(name)):
        folder = tmp_path / str(index)
        folder.mkdir()
        built = build_engine_of(FolderSource(name, context_of(name, ids)), tier, folder)
        model = read_portable(built.onnx)
        weights, exact = cache(dense_weights(model)), cpu_roundings(model)

        def numpy_logits(
            roundings: Roundings, weights: Weights = weights, model: PortableModel = model, ids: list[int] = ids
        ) -> np.ndarray:
            return forward(weights, model.spec, ids, range(len(ids)), roundings)

        expected = numpy_logits(exact)
        others = [numpy_logits(jostled(exact, seed)) - expected for seed in range(2)]
        assert rms(built.logits(ids) - expected) < 1.25 * rms(np.array(others))


def jostled(roundings: Roundings, seed: int) -> Roundings:
    drawn = np.random.default_rng(seed)

    def kept(x: np.ndarray) -> np.ndarray:
        return roundings.kept(x * (1 + 3e-4 * drawn.standard_normal(x.shape, np.float32)))

    return Roundings(roundings.inputs, kept)


def rms(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(x))))


@pytest.mark.parametrize("tier", ["fp16", "int8", "int4"])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_lowered_graph_gives_the_logits_of_its_own_weights(name: str, tier: str, tmp_path: Path) -> None:
    from lowered_graphs import lowered_weights

    ids, _ = list(read_prompts(name))[-1]
    source, folder = FolderSource(name, context_of(name, ids)), tmp_path / "graphs"
    folder.mkdir()
    portable = tmp_path / "half.onnx"
    write_portable(source, load_tier(tier), portable, dtype="float16", max_context=128)
    path = lower_graphs(portable, folder, ("tensorrt-rtx",), SilentProgress()).graphs[0].path
    weights = lowered_weights(path, read_portable(portable))
    expected = forward(lambda tensor: weights[tensor], source.spec, ids, range(len(ids)))
    graph = OrtGraph.open(path, source.spec, threads=2)
    found = np.concatenate([rows.copy() for rows in graph.logits(ids, chunk=16)])
    # float16 in the residual stream and in the products.
    assert np.abs(found - expected).max() < 0.02 * np.abs(expected).max()
