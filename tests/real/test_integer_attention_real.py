"""The CPU engine's integer attention on real models, against float32 attention over the same weights and pages.

With fp16 weights the engine rounds nothing else: activations stay float32, so what differs is attention alone. Measured over
80 rows each, in nats a row: SmolLM2 3.2e-5 in the mean and 9.7e-4 at most, Gemma 1.2e-4 and 1.2e-3; rounding K and V to fp16
pages, which both sides do here, makes 6e-6 and 3e-6. In SmolLM2 scores that are 1 % too large make a mean of 0.09, pages of 8
bits 0.03.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibration.tiers import load_tier
from edge.comparison import Comparison
from edge.progress import SilentProgress
from edge.teacher import open_teacher

pytest.importorskip("edge._core", reason="needs the native core: pip install .")
pytest.importorskip("onnx", reason="needs the build extra: onnx")
pytest.importorskip("gguf", reason="needs the build extra: gguf")

from engines.cpu.backend import write_engine
from engines.portable.export import write_portable
from engines.portable.reader import read_portable
from engines.reference.cpu_roundings import cpu_roundings, dense_weights
from engines.reference.numpy_forward import forward
from engines.sources.base import open_source

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"

pytestmark = [pytest.mark.real, pytest.mark.native, pytest.mark.build]


@pytest.mark.parametrize(
    ("model", "fixture", "tokens", "most_mean"),
    [
        ("smollm2_gguf", "smollm2_logits.npz", 384, 1e-4),  # three blocks of attention
        ("gemma3_gguf", "gemma3_logits.npz", 640, 4e-4),  # beyond the window of 512
    ],
)
def test_integer_attention_gives_the_logits_of_float32_attention(
    model: str, fixture: str, tokens: int, most_mean: float, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    source = open_source(request.getfixturevalue(model))
    write_portable(source, load_tier("fp16"), tmp_path / "model.onnx")
    write_engine(tmp_path / "model.onnx", tmp_path / "engine", SilentProgress())
    stored, portable = np.load(FIXTURES / fixture), read_portable(tmp_path / "model.onnx")
    ids = stored["ids_0"].tolist()[:tokens]
    rows = [row for row in stored["rows_0"].tolist() if row < tokens]
    expected = forward(dense_weights(portable), portable.spec, ids, rows, cpu_roundings(portable))
    with open_teacher(tmp_path / "engine", portable.spec, tokens) as teacher:
        found = np.concatenate([part.copy() for part in teacher.rows(ids)])[rows]
    compared = Comparison()
    compared.add(expected, found, np.empty(0, np.int64))
    assert compared.rows == len(rows) >= 60
    assert compared.kl_mean < most_mean
    assert compared.kl_max < 5e-3
    assert compared.top1 > 0.97
