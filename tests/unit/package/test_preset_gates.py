"""Gates of presets: what they judge, and what a preset whose gate failed means at run time."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from engine_packages import manifest_of, rtx_engine, rtx_files

from edge.comparison import Comparison
from edge.config import AUTO, InferenceConfig
from edge.errors import RequestError
from edge.manifest import Manifest, Verdict, from_json
from edge.package import Package
from edge.preset_gates import GATES, check_gate, judge_preset, next_safer, passing_presets
from edge.presets import PRESETS, PresetName
from edge.runnable import check_asked, choose_preset

ROWS = np.random.default_rng(0).normal(size=(40, 64)).astype(np.float32)


def compared(noise: float) -> Comparison:
    found = Comparison()
    tested = ROWS + noise * np.random.default_rng(1).normal(size=ROWS.shape).astype(np.float32)
    found.add(ROWS, tested, np.zeros(40, np.int64))
    return found


def verdict(preset: PresetName, noise: float, floor: float = 0.0) -> Verdict:
    return judge_preset(preset, compared(noise), compared(floor), text="t", windows=1, window_tokens=512)


def manifest(verdicts: dict[str, Verdict]) -> Manifest:
    plain = manifest_of("a10", rtx_engine(), rtx_files())
    plain["capabilities"]["presets"] = list(PRESETS)
    return dataclasses.replace(from_json(json.dumps(plain), "here"), preset_verdicts=verdicts)


def test_every_preset_that_seals_has_a_gate_and_smaller_ones_have_wider_ones() -> None:
    assert list(GATES) == [name for name, preset in PRESETS.items() if preset.seals]
    assert [gate.kl_mean for gate in GATES.values()] == [0.001, 0.006, 0.02]
    assert [gate.top1 for gate in GATES.values()] == [0.985, 0.96, 0.94]


def test_a_gate_passes_what_is_alike_and_fails_what_is_not() -> None:
    assert verdict("safe", 1e-4).passed
    failed = verdict("safe", 0.2)
    assert not failed.passed and failed.kl_mean > GATES["safe"].kl_mean
    assert failed.broken[0].startswith("KL ")


def test_what_any_change_does_to_an_engine_is_not_held_against_a_preset() -> None:
    assert not verdict("safe", 0.1).passed
    assert verdict("safe", 0.1, floor=0.1).passed
    assert not verdict("safe", 0.2, floor=0.1).passed


def test_a_preset_whose_gate_failed_is_refused_with_the_next_safer_one_that_passed() -> None:
    found = manifest({"safe": verdict("safe", 1e-4), "balanced": verdict("balanced", 1.0), "tight": verdict("tight", 1.0)})
    for preset in ("exact", "safe"):
        check_gate(found, "a.edge", preset)
    with pytest.raises(RequestError) as caught:
        check_asked(found, "a.edge", preset="tight", prefixes=False)
    message = str(caught.value)
    assert message.startswith("a.edge: the preset tight failed its gate when the package was built (KL ")
    assert message.endswith("Take the next safer one: --kv-preset safe; or this one all the same: --ignore-verdict")
    check_asked(found, "a.edge", preset="tight", prefixes=False, forced=True)


def test_a_preset_that_was_not_measured_is_no_failure() -> None:
    check_gate(manifest({}), "a.edge", "tight")
    assert passing_presets(manifest({})) == tuple(PRESETS)


def test_where_no_preset_passed_exact_is_the_next_safer_one() -> None:
    assert next_safer("safe", ()) == "exact"
    assert next_safer("tight", ("exact", "balanced", "safe")) == "balanced"


def test_the_default_is_never_a_preset_whose_gate_failed() -> None:
    config = dataclasses.replace(InferenceConfig.load(), kv_preset="safe")
    good, bad = (Package(Path("a.edge"), manifest({"safe": verdict("safe", noise)})) for noise in (1e-4, 1.0))
    assert choose_preset(good, AUTO, config) == "safe"
    assert choose_preset(bad, AUTO, config) == "exact"
    assert choose_preset(bad, "safe", config) == "safe"  # asked for: refused with a reason, not replaced
