"""Real models as portable ONNX: carried exactly, and equal to a plain forward pass when ONNX Runtime runs them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from calibration.schemes import QuantTensor
from calibration.tiers import load_tier
from engines.portable.export import write_portable
from engines.portable.reader import PortableModel, read_portable
from engines.reference.numpy_forward import forward
from engines.reference.ort import OrtReference
from engines.sources.base import open_source

pytestmark = pytest.mark.build
pytest.importorskip("onnx", reason="needs the build extra: onnx")
pytest.importorskip("onnxruntime", reason="needs the build extra: onnxruntime (Python 3.11 or newer)")


@pytest.fixture(scope="module")
def smollm2(smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("smollm2") / "model.onnx"
    report = write_portable(open_source(smollm2_gguf), load_tier("int4"), out)
    assert report.rounded == ()  # Q4_1 and a Q8_0 table: int4 carries both
    assert report.bits_per_weight == pytest.approx(5.74, abs=0.01)
    return out


@pytest.fixture(scope="module")
def gemma3(gemma3_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("gemma3") / "model.onnx"
    write_portable(open_source(gemma3_gguf), load_tier("int4"), out)
    return out


def dense_weights(model: PortableModel) -> Callable[[str], np.ndarray]:
    def read(name: str) -> np.ndarray:
        values = model.weight(name)
        return values.dequantise() if isinstance(values, QuantTensor) else values.astype(np.float32)

    return cache(read)


def some_ids(vocab_size: int, count: int) -> list[int]:
    return np.random.default_rng(count).integers(0, vocab_size, count).tolist()


def chosen_rows(reference: OrtReference, ids: list[int], chunk: int, rows: list[int]) -> np.ndarray:
    """The logits of `rows`, while the others are dropped chunk by chunk."""
    kept, begin = [], 0
    for logits in reference.logits(ids, chunk):
        kept += [logits[row - begin].copy() for row in rows if begin <= row < begin + len(logits)]
        begin += len(logits)
    return np.array(kept)


def test_smollm2_gives_the_logits_of_a_plain_forward_pass(smollm2: Path) -> None:
    model, ids = read_portable(smollm2), some_ids(49152, 40)
    expected = forward(dense_weights(model), model.spec, ids, range(40))
    found = chosen_rows(OrtReference(smollm2, 2), ids, 128, list(range(40)))
    assert expected.std() > 1
    assert np.abs(found - expected).max() < 1e-3
    assert np.array_equal(found.argmax(axis=1), expected.argmax(axis=1))


def test_smollm2_in_chunks_gives_what_one_run_gives(smollm2: Path) -> None:
    reference, ids, rows = OrtReference(smollm2, 2), some_ids(49152, 300), [0, 1, 99, 100, 255, 256, 299]
    whole = chosen_rows(reference, ids, 300, rows)
    assert np.abs(chosen_rows(reference, ids, 100, rows) - whole).max() < 1e-3
    assert np.abs(chosen_rows(reference, ids, 128, rows) - whole).max() < 1e-3


def test_gemma_gives_the_logits_of_a_plain_forward_pass_beyond_its_window(gemma3: Path) -> None:
    model, ids, rows = read_portable(gemma3), some_ids(262144, 600), [0, 511, 512, 513, 599]
    assert model.spec.group_windows == (0, 512)
    expected = forward(dense_weights(model), model.spec, ids, rows)
    found = chosen_rows(OrtReference(gemma3, 2), ids, 128, rows)
    assert expected.std() > 1
    assert np.abs(found - expected).max() < 2e-3
    assert np.array_equal(found.argmax(axis=1), expected.argmax(axis=1))
