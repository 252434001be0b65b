"""Which scheme a tensor gets, what is carried, what is converted, and what the report says of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from calibration.rtn import quantise_rtn
from calibration.schemes import QuantTensor
from calibration.tiers import Limits, Tier, VerifySettings, apply_tier, load_tier, mean_bits, role_of
from edge.errors import ConfigError, SourceError
from edge.yamls import load_yaml, yaml_names, yaml_root


@dataclass(frozen=True)
class Read:
    """A tensor as a source gives it."""

    values: np.ndarray | QuantTensor
    source_type: str = "F32"
    rounding: str = ""
    relative_error: float = 0.0
    name: str = "layers.0.attn.q_proj.weight"


WEIGHTS = np.random.default_rng(0).standard_normal((20, 64)).astype(np.float32)


def quantised(bits: int, group: int, minima: bool) -> QuantTensor:
    return quantise_rtn(WEIGHTS, bits, group, symmetric=not minima)


FORMS = {
    "Q4_0": quantised(4, 32, minima=False), "Q4_1": quantised(4, 32, minima=True), "Q4_K": quantised(4, 32, minima=True),
    "Q5_0": quantised(8, 32, minima=False), "Q5_1": quantised(8, 32, minima=True), "Q8_0": quantised(8, 32, minima=False),
    "Q5_K": quantised(8, 32, minima=True), "Q6_K": quantised(8, 16, minima=False),
}  # fmt: skip


@pytest.mark.parametrize("name", ["fp16", "int8", "int4"])
def test_a_shipped_tier_carries_its_own_name(name: str) -> None:
    tier = load_tier(name)
    assert tier.name == name and tier.engine_limits.mean_kl <= tier.source_limits.mean_kl
    assert name in yaml_names("tiers")


def test_embedding_and_head_are_int8_in_int4() -> None:
    roles = load_tier("int4").roles
    assert (roles.embedding, roles.head, roles.q_proj, roles.down_proj, roles.norms) == ("int8", "int8", "int4", "int4", "fp32")


def test_an_unknown_tier_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"int44.*There are: fp16, int4, int8"):
        load_tier("int44")


def test_an_unknown_scheme_or_role_in_a_tier_file_is_refused_with_its_line(tmp_path: Path) -> None:
    text = (yaml_root() / "tiers" / "int4.yaml").read_text(encoding="utf-8")
    for wrong, fact in (("v_proj: int3", "int3"), ("v_projection: int4", "v_projection")):
        path = tmp_path / "mine.yaml"
        path.write_text(text.replace("v_proj: int4", wrong), encoding="utf-8")
        with pytest.raises(ConfigError, match=rf"mine\.yaml:\d+: .*{fact}"):
            load_yaml(path, Tier)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Limits(mean_kl=0.0, top1=0.9, perplexity_ratio=1.1),
        lambda: Limits(mean_kl=0.1, top1=1.1, perplexity_ratio=1.1),
        lambda: Limits(mean_kl=0.1, top1=0.9, perplexity_ratio=0.9),
        lambda: VerifySettings(tokens=10, window=20),
        lambda: VerifySettings(tokens=10, window=1),
    ],
)
def test_limits_that_mean_nothing_are_refused(make: object) -> None:
    with pytest.raises(ValueError):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("embed.weight", "embedding"), ("head.weight", "head"), ("layers.11.attn.q_proj.weight", "q_proj"),
        ("layers.0.attn.o_proj.weight", "o_proj"), ("layers.0.ffn.down_proj.weight", "down_proj"),
        ("layers.0.attn_norm.weight", "norms"), ("layers.0.attn.q_norm.weight", "norms"), ("final_norm.weight", "norms"),
    ],
)  # fmt: skip
def test_a_tensors_role_follows_from_its_name(name: str, role: str) -> None:
    assert role_of(name) == role


@pytest.mark.parametrize("source_type", FORMS)
def test_int4_carries_every_quantised_tensor_as_it_is(source_type: str) -> None:
    source = FORMS[source_type]
    stored, report = apply_tier("q_proj", Read(source, source_type), load_tier("int4"))
    assert stored is source and report.exact and (report.max_error, report.rms_error, report.note) == (0.0, 0.0, "")
    assert report.bits_per_weight == source.bits_per_weight and report.source_type == source_type


@pytest.mark.parametrize("source_type", ["Q5_0", "Q5_1", "Q8_0", "Q5_K", "Q6_K"])
def test_int4_requantises_what_has_more_bits_when_asked(source_type: str) -> None:
    stored, report = apply_tier("q_proj", Read(FORMS[source_type], source_type), load_tier("int4"), requantise=True)
    assert isinstance(stored, QuantTensor) and (stored.bits, stored.group) == (4, 32) and stored.minima is not None
    assert not report.exact and 0.01 < report.rms_error < 0.1 and report.note == "rounded to nearest in int4/32+min"
    assert report.stored == "int4/32+min" and report.bits_per_weight == 5.0


@pytest.mark.parametrize("source_type", ["Q4_0", "Q4_1", "Q4_K"])
def test_int4_never_requantises_what_has_four_bits(source_type: str) -> None:
    stored, report = apply_tier("q_proj", Read(FORMS[source_type], source_type), load_tier("int4"), requantise=True)
    assert stored is FORMS[source_type] and report.exact


@pytest.mark.parametrize("requantise", [False, True])
@pytest.mark.parametrize("source_type", FORMS)
def test_int8_holds_every_quantised_tensor_exactly(source_type: str, requantise: bool) -> None:
    stored, report = apply_tier("q_proj", Read(FORMS[source_type], source_type), load_tier("int8"), requantise)
    assert isinstance(stored, QuantTensor) and stored.bits == 8 and report.exact
    np.testing.assert_array_equal(stored.dequantise(), FORMS[source_type].dequantise())


@pytest.mark.parametrize(("tier", "bits", "minima", "limit"), [("int8", 8, False, 0.006), ("int4", 4, True, 0.08)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_floats_are_rounded_to_the_scheme_of_the_tier(tier: str, bits: int, minima: bool, limit: float, dtype: type) -> None:
    weights = WEIGHTS.astype(dtype)
    stored, report = apply_tier("up_proj", Read(weights, "F16"), load_tier(tier))
    assert isinstance(stored, QuantTensor) and stored.bits == bits and (stored.minima is not None) == minima
    difference = stored.dequantise() - weights.astype(np.float32)
    assert report.max_error == pytest.approx(np.abs(difference).max(), rel=1e-6)
    assert report.rms_error == pytest.approx(np.linalg.norm(difference) / np.linalg.norm(weights.astype(float)), rel=1e-3)
    assert 0 < report.rms_error < limit and not report.exact


def test_errors_of_a_padded_and_long_tensor_are_those_of_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.random.default_rng(1).standard_normal((30, 40)).astype(np.float32) + 2
    monkeypatch.setattr("calibration.tiers.CHUNK_WEIGHTS", 3 * 40)
    stored, report = apply_tier("up_proj", Read(weights), load_tier("int4"))
    assert isinstance(stored, QuantTensor) and stored.shape == (30, 64) and report.weights == 30 * 40
    assert report.max_error == pytest.approx(np.abs(stored.dequantise()[:, :40] - weights).max(), rel=1e-6)


@pytest.mark.parametrize("source_type", FORMS)
def test_fp16_dequantises_and_reports_what_it_rounds(source_type: str) -> None:
    stored, report = apply_tier("q_proj", Read(FORMS[source_type], source_type), load_tier("fp16"))
    assert isinstance(stored, np.ndarray) and stored.dtype == np.float16
    np.testing.assert_array_equal(stored, FORMS[source_type].dequantise().astype(np.float16))
    assert 0 < report.max_error < 2e-3 and report.note == "weights rounded to fp16" and report.bits_per_weight == 16.0


def test_fp16_carries_float16_as_it_is() -> None:
    halves = WEIGHTS.astype(np.float16)
    stored, report = apply_tier("q_proj", Read(halves, "F16"), load_tier("fp16"))
    assert stored is halves and report.exact and report.note == ""


def test_fp16_refuses_what_it_cannot_hold() -> None:
    with pytest.raises(SourceError, match=r"q_proj\.weight: holds a value over 65,504"):
        apply_tier("q_proj", Read(WEIGHTS * 1e6), load_tier("fp16"))


@pytest.mark.parametrize("tier", ["fp16", "int8", "int4"])
def test_norms_stay_float32_vectors(tier: str) -> None:
    vector = np.array([1.5, -2.0], np.float16)
    stored, report = apply_tier("norms", Read(vector, "F16", name="final_norm.weight"), load_tier(tier))
    assert isinstance(stored, np.ndarray) and stored.dtype == np.float32 and stored.tolist() == [1.5, -2.0]
    assert (report.stored, report.exact, report.bits_per_weight) == ("fp32", True, 32.0)


def test_a_rounding_while_reading_is_in_the_report() -> None:
    read = Read(FORMS["Q4_K"], "Q4_K", rounding="3 of 40 scales and minima rounded to fp16", relative_error=4e-4)
    _, report = apply_tier("q_proj", read, load_tier("int4"))
    assert not report.exact and report.scale_error == 4e-4 and report.max_error == 0.0
    assert report.note == "3 of 40 scales and minima rounded to fp16"


def test_mean_bits_weigh_tensors_by_their_size() -> None:
    tier = load_tier("int4")
    _, large = apply_tier("q_proj", Read(WEIGHTS), tier)
    _, small = apply_tier("norms", Read(WEIGHTS[0], name="final_norm.weight"), tier)
    assert mean_bits([large, small]) == pytest.approx((5.0 * 1280 + 32.0 * 64) / 1344)
