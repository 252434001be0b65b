"""Reading a real model and computing it in NumPy gives the logits that transformers gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engines.reference.numpy_forward import Weights, forward
from engines.sources.base import Source, open_source

pytest.importorskip("gguf", reason="needs the build extra: gguf")

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
# Logits reach 40; float32 sums in another order differ by 4e-4, on AVX2 by 2.7e-3 in the row that test_packages_real.py names.
TOLERANCE = 5e-3
ROUNDED_TOLERANCE = 0.4  # K formats with their scales rounded to fp16 differ by 0.2 at most, by 0.02 rms

pytestmark = [pytest.mark.real, pytest.mark.build]


def exact_weights(source: Source) -> Weights:
    return lambda name: source.read_exact(name, 0, source.shape(name)[0])


def carried_weights(source: Source) -> Weights:
    return lambda name: source.read(name).to_float32()


def compare(source: Source, weights: Weights, fixture: Path, prompt: int, tolerance: float) -> None:
    """The stored logits and the log-sum-exp of each stored row against ours."""
    stored = np.load(fixture)
    logits = forward(weights, source.spec, stored[f"ids_{prompt}"], stored[f"rows_{prompt}"])
    ours = np.take_along_axis(logits, stored[f"best_ids_{prompt}"], axis=1)
    largest = logits.max(axis=1, keepdims=True)
    log_sum_exp = (largest + np.log(np.exp(logits - largest).sum(axis=1, keepdims=True)))[:, 0]
    np.testing.assert_allclose(ours, stored[f"best_values_{prompt}"], rtol=0, atol=tolerance)
    np.testing.assert_allclose(log_sum_exp, stored[f"log_sum_exp_{prompt}"], rtol=0, atol=tolerance)


@pytest.mark.parametrize("prompt", [0, 1])
def test_smollm2_as_it_is_carried_gives_the_logits_of_transformers(smollm2_gguf: Path, prompt: int) -> None:
    source = open_source(smollm2_gguf)
    compare(source, carried_weights(source), FIXTURES / "smollm2_logits.npz", prompt, TOLERANCE)


def test_gemma3_gives_the_logits_of_transformers_across_its_window(gemma3_gguf: Path) -> None:
    source = open_source(gemma3_gguf)
    assert len(np.load(FIXTURES / "gemma3_logits.npz")["ids_0"]) > 512 == max(source.spec.group_windows)
    compare(source, exact_weights(source), FIXTURES / "gemma3_logits.npz", 0, TOLERANCE)


def test_gemma3_as_it_is_carried_stays_near_the_logits_of_transformers(gemma3_gguf: Path) -> None:
    source = open_source(gemma3_gguf)
    compare(source, carried_weights(source), FIXTURES / "gemma3_logits.npz", 1, ROUNDED_TOLERANCE)
