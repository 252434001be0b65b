"""KV presets of real models on long text: within their gates, beyond what any change does to the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibration.build_text import NAME, read_build_text
from edge.kv_eval.fed_sequence import FLOOR, open_sequences
from edge.kv_eval.forms import forms_of
from edge.kv_eval.likeness import measure_likeness
from edge.kv_eval.texts import Text, cut_documents
from edge.package import Package
from edge.preset_gates import judge_preset
from edge.presets import PresetName
from edge.progress import SilentProgress

pytestmark = [pytest.mark.real, pytest.mark.native]

CONTEXT, DOCUMENTS, ROWS = 1024, 3, 384


def test_safe_and_balanced_keep_their_gates_on_smollm2(smollm2_package: Path) -> None:
    package = Package.open(smollm2_package)
    documents = cut_documents(package.open_tokenizer(), [Text(NAME, read_build_text())], CONTEXT, DOCUMENTS)
    names: tuple[PresetName, ...] = ("exact", "safe", "balanced")
    with open_sequences(package.path / "engine", package.spec, forms_of(names), CONTEXT) as sequences:
        found = measure_likeness(sequences, documents, ROWS, 8, SilentProgress())
    floor = found[FLOOR].comparison
    assert 0 < floor.kl_mean < 0.006  # int8 activations
    for preset in names[1:]:
        verdict = judge_preset(preset, found[preset].comparison, floor, text=NAME, windows=DOCUMENTS, window_tokens=CONTEXT)
        assert verdict.tokens == DOCUMENTS * ROWS
        assert verdict.passed, (preset, verdict.broken)
        assert sum(found[preset].kv_bytes.values()) < 0.6 * sum(found["exact"].kv_bytes.values())
