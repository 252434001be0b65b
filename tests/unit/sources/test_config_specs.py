"""What a config.json makes of a model: the forms that files of several ages have, and what is never passed over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge.errors import SourceError
from edge.spec import LayerSpec, ModelSpec, RopeSpec
from engines.sources.architectures import CONFIG_READERS
from engines.sources.keys import Keys

BASE = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 100, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "torch_dtype": "bfloat16", "architectures": ("ForCausalLM",), "transformers_version": "4.40.0", "use_cache": True,
}  # fmt: skip
GEMMA = {"hidden_activation": "gelu_pytorch_tanh", "hidden_act": "gelu", "head_dim": 16, "sliding_window": 8}
SHORT, LONG = np.linspace(1, 2, 8), np.linspace(1, 9, 8)
LONG_ROPE = {"rope_scaling.type": "longrope", "rope_scaling.short_factor": SHORT, "rope_scaling.long_factor": LONG}


def spec_of(family: str, own: dict[str, Any], nulls: tuple[str, ...] = (), context: int | None = None) -> ModelSpec:
    spec = CONFIG_READERS[family](Keys(Path("config.json"), BASE | own, nulls), "model", context)
    spec.check()
    return spec


def refused(family: str, own: dict[str, Any]) -> str:
    with pytest.raises(SourceError) as error:
        spec_of(family, own)
    return str(error.value)


def windows(spec: ModelSpec) -> list[int]:
    return [layer.window for layer in spec.layers]


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "phi3"])
def test_heads_and_untied_embeddings_are_derived_where_a_file_is_silent(family: str) -> None:
    spec = spec_of(family, {}, nulls=("sliding_window", "head_dim"))
    assert (spec.head_dim, spec.tied_head, spec.attention_scale) == (16, False, 0.25)
    assert spec.ropes[0] == RopeSpec(16, 10_000.0, ()) and windows(spec) == [0] * 4


def test_a_head_width_in_the_file_is_taken_and_qwen3s_is_128_without() -> None:
    assert spec_of("llama", {"head_dim": 32}).head_dim == 32
    assert spec_of("qwen3", {}).head_dim == 128
    assert spec_of("qwen3", {"head_dim": 64}).head_dim == 64
    assert "head_dim: is missing, and 4 heads do not divide a width of 66" in refused("llama", {"hidden_size": 66})


def test_biases_are_qwen2s_and_norms_of_q_and_k_qwen3s() -> None:
    assert spec_of("qwen2", {}).qkv_bias and not spec_of("qwen2", {}).qk_norm
    assert spec_of("qwen3", {}).qk_norm and not spec_of("qwen3", {}).qkv_bias


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_theta": 5e5, "rope_scaling.rope_type": "linear", "rope_scaling.factor": 4.0},
        {"rope_theta": 5e5, "rope_scaling.type": "linear", "rope_scaling.factor": 4.0},
        {"rope_parameters.rope_theta": 5e5, "rope_parameters.rope_type": "linear", "rope_parameters.factor": 4.0},
    ],
)
def test_scaling_is_read_where_files_of_each_age_have_it(scaling: dict[str, Any]) -> None:
    assert spec_of("llama", scaling).ropes == (RopeSpec(16, 5e5, (4.0,) * 8),)


def test_llama3_keeps_short_waves_and_divides_long_ones() -> None:
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 8192}  # fmt: skip
    own = {"head_dim": 64, "rope_theta": 5e5} | {f"rope_scaling.{key}": value for key, value in scaling.items()}
    divisors = spec_of("llama", own).ropes[0].divisors
    waves = 2 * np.pi * 5e5 ** (np.arange(32) / 32)
    for wave, divisor in zip(waves, divisors, strict=True):
        if wave < 8192 / 4:
            assert divisor == 1.0
        elif wave > 8192:
            assert divisor == pytest.approx(8.0)
        else:
            assert 1.0 < divisor < 8.0
    assert list(divisors) == sorted(divisors) and 1.0 < divisors[16] < 8.0
    assert "low_freq_factor: is 4, not below" in refused("llama", own | {"rope_scaling.low_freq_factor": 4.0})


@pytest.mark.parametrize(
    ("family", "own", "fact"),
    [
        ("llama", {"rope_scaling.type": "dynamic", "rope_scaling.factor": 2.0}, "positions of kind dynamic cannot be built"),
        ("qwen2", {"rope_scaling.type": "yarn", "rope_scaling.factor": 4.0}, "positions of kind yarn cannot be built"),
        ("phi3", {"rope_scaling.type": "linear", "rope_scaling.factor": 4.0}, "positions of kind linear cannot be built"),
        ("llama", {"partial_rotary_factor": 0.5}, "is 0.5; heads of llama turn whole"),
        ("llama", {"attention_bias": True}, "attention_bias: is true, which cannot be built yet"),
        ("smollm3", {"mlp_bias": True}, "mlp_bias: is true, which cannot be built yet"),
        ("llama", {"rope_interleaved": True}, "rope_interleaved: is true"),
        ("llama", {"hidden_act": "relu"}, "hidden_act: is 'relu'; known are silu, swish, gelu_pytorch_tanh"),
        ("llama", {"residual_multiplier": 0.2}, "residual_multiplier: is 0.2 and not known"),
        ("qwen2", {"num_key_value_heads": 3}, "is 3, which does not divide 4 heads"),
        ("qwen2", {"layer_types": ("full_attention",) * 3}, "layer_types: has 3 entries for 4 layers"),
        ("qwen2", {"layer_types": ("full_attention",) * 3 + ("linear_attention",)}, "names 'linear_attention'"),
        ("smollm3", {"no_rope_layers": np.array([1, 1, 2, 0])}, "is not a list of 4 times 0 or 1"),
        ("gemma3_text", GEMMA | {"use_bidirectional_attention": True}, "use_bidirectional_attention: is true"),
        ("phi3", {"lm_head_bias": True}, "lm_head_bias: is true"),
        ("phi3", {"full_attn_mod": 2}, "full_attn_mod: is 2; only 1"),
        ("qwen2", {"use_mrope": True}, "use_mrope: is true"),
        ("llama", {"rope_theta": 10**400}, "not a positive number that a model has"),
        ("llama", {"head_dim": 1 << 30, "rope_scaling.type": "linear", "rope_scaling.factor": 2.0}, "over 4,096"),
        ("phi3", {"partial_rotary_factor": 1e308}, "not a positive number that a model has"),
        ("phi3", LONG_ROPE | {"rope_scaling.attention_factor": 1e200}, "not a positive number that a model has"),
        ("phi3", LONG_ROPE | {"original_max_position_embeddings": 1}, "original_max_position_embeddings: is 1; long-rope"),
    ],
)  # fmt: skip
def test_what_would_be_computed_otherwise_is_refused_with_its_key(family: str, own: dict[str, Any], fact: str) -> None:
    message = refused(family, own)
    assert message.startswith("config.json: key ") and fact in message


def test_records_of_training_and_generation_are_passed_over() -> None:
    own = {"_name_or_path": "x", "auto_map.AutoConfig": "a.B", "id2label.0": "LABEL_0", "temperature": 0.7, "pretraining_tp": 1}
    assert spec_of("llama", own).num_heads == 4


def test_parts_that_published_files_name_and_switch_off_are_passed_over() -> None:
    phi4_mini = {"full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": False, "mlp_bias": False, "attention_bias": False}
    assert spec_of("phi3", phi4_mini).num_heads == 4
    assert spec_of("qwen2", {"use_mrope": False}).num_heads == 4  # Qwen 2.5


def test_mistral_has_a_window_unless_its_file_says_null() -> None:
    assert windows(spec_of("mistral", {"max_position_embeddings": 32768})) == [4096] * 4
    assert windows(spec_of("mistral", {"max_position_embeddings": 32768}, nulls=("sliding_window",))) == [0] * 4
    assert windows(spec_of("mistral", {"sliding_window": 256})) == [0] * 4  # it holds the whole context
    assert windows(spec_of("mistral", {"sliding_window": 255})) == [255] * 4


def test_qwens_windows_begin_behind_its_first_layers_where_they_are_on() -> None:
    own = {"sliding_window": 8, "max_window_layers": 3}
    assert windows(spec_of("qwen2", own)) == [0] * 4
    assert windows(spec_of("qwen2", own | {"use_sliding_window": True})) == [0, 0, 0, 8]
    kinds = ("sliding_attention", "full_attention") * 2
    assert windows(spec_of("qwen3", own | {"use_sliding_window": True, "layer_types": kinds})) == [8, 0, 8, 0]


def test_smollm3_leaves_every_fourth_layer_without_positions() -> None:
    spec = spec_of("smollm3", {})
    assert [spec.ropes[layer.rope].dim for layer in spec.layers] == [16, 16, 16, 0]
    assert spec.ropes[0].base == 2e6 and spec.tied_head
    spec = spec_of("smollm3", {"no_rope_layers": np.array([0, 1, 1, 1])})
    assert [spec.ropes[layer.rope].dim for layer in spec.layers] == [0, 16, 16, 16]


def test_gemma2_has_caps_and_windows_in_turn_unless_its_file_says_null() -> None:
    spec = spec_of("gemma2", GEMMA | {"query_pre_attn_scalar": 12})
    assert (spec.attention_soft_cap, spec.logit_soft_cap, spec.attention_scale) == (50.0, 30.0, 12**-0.5)
    assert windows(spec) == [8, 0, 8, 0] and spec.post_norms and not spec.qk_norm and spec.tied_head
    spec = spec_of("gemma2", GEMMA, nulls=("attn_logit_softcapping", "final_logit_softcapping"))
    assert (spec.attention_soft_cap, spec.logit_soft_cap) == (0.0, 0.0)


def test_gemma3_of_4b_turns_its_global_layers_by_an_eighth() -> None:
    """The text part of a checkpoint with eyes names only what differs from the architecture's defaults."""
    text = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024,
            "rope_scaling.factor": 8.0, "rope_scaling.rope_type": "linear", "model_type": "gemma3_text"}  # fmt: skip
    values = {f"text_config.{key}": value for key, value in text.items()}
    values |= {"model_type": "gemma3", "vision_config.hidden_size": 1152, "mm_tokens_per_image": 256}
    spec = CONFIG_READERS["gemma3"](Keys(Path("config.json"), values), "4b", None)
    spec.check()
    assert (spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.vocab_size) == (8, 4, 256, 262_208)
    assert spec.ropes == (RopeSpec(256, 1e4, ()), RopeSpec(256, 1e6, (8.0,) * 128))
    assert spec.layers[:6] == (LayerSpec(1024, 0),) * 5 + (LayerSpec(0, 1),)


def test_gemma3s_local_layers_keep_their_base_where_a_file_names_one_rope_only() -> None:
    own = GEMMA | {"rope_parameters.rope_type": "default", "rope_parameters.rope_theta": 1e6}
    assert [rope.base for rope in spec_of("gemma3_text", own).ropes] == [1e4, 1e6]
    own = GEMMA | {"rope_parameters.sliding_attention.rope_theta": 5e3, "rope_parameters.full_attention.rope_theta": 2e6}
    assert [rope.base for rope in spec_of("gemma3_text", own).ropes] == [5e3, 2e6]


@pytest.mark.parametrize(
    ("own", "bases"),
    [
        ({}, [1e4, 1e6]),
        ({"rope_theta": 5e5}, [1e4, 5e5]),
        ({"rope_local_base_freq": 2e4}, [2e4, 1e6]),
        ({"rope_theta": 5e5, "rope_local_base_freq": 2e4}, [2e4, 5e5]),
    ],
)
@pytest.mark.parametrize("parts", [("sliding_attention",), ("full_attention",), ("sliding_attention", "full_attention")])
def test_a_part_of_gemma3s_ropes_without_a_base_has_that_of_its_layers(
    parts: tuple[str, ...], own: dict[str, float], bases: list[float]
) -> None:
    ropes = {f"rope_parameters.{part}.rope_type": "default" for part in parts}
    assert [rope.base for rope in spec_of("gemma3_text", GEMMA | ropes | own).ropes] == bases
    scaled = {f"rope_parameters.{part}.rope_type": "linear" for part in parts}
    scaled |= {f"rope_parameters.{part}.factor": 4.0 for part in parts}
    spec = spec_of("gemma3_text", GEMMA | scaled | own)
    assert [rope.base for rope in spec.ropes] == bases
    assert [bool(rope.divisors) for rope in spec.ropes] == [part in parts for part in ("sliding_attention", "full_attention")]


def test_a_part_of_gemma3s_ropes_that_says_only_half_is_not_passed_over() -> None:
    own = GEMMA | {"rope_parameters.sliding_attention.factor": 4.0, "rope_parameters.full_attention.rope_theta": 1e6}
    assert "rope_parameters.sliding_attention.factor: is 4.0 and not known" in refused("gemma3_text", own)


@pytest.mark.parametrize("place", ["rope_scaling", "rope_parameters"])
def test_long_rope_is_short_up_to_the_original_context_and_long_beyond(place: str) -> None:
    own = {"original_max_position_embeddings": 64, f"{place}.type": "longrope",
           f"{place}.short_factor": SHORT, f"{place}.long_factor": LONG}  # fmt: skip
    grown = 1 + np.log(4) / np.log(64)  # the square of the factor on q and on k
    for context, factors, length in ((None, LONG, 256), (65, LONG, 256), (64, SHORT, 64), (7, SHORT, 64)):
        spec = spec_of("phi3", own, context=context)
        assert spec.ropes[0].divisors == tuple(factors) and spec.context_length == length
        assert spec.attention_scale == pytest.approx(0.25 * grown) and spec.ropes[0].q_scale == 1.0


def test_long_rope_of_a_part_of_each_head_grows_the_rows_of_q_that_turn() -> None:
    own = {"original_max_position_embeddings": 64, "partial_rotary_factor": 0.75, "rope_scaling.type": "longrope",
           "rope_scaling.short_factor": SHORT[:6], "rope_scaling.long_factor": LONG[:6]}  # fmt: skip
    spec = spec_of("phi3", own)
    assert (spec.ropes[0].dim, spec.attention_scale) == (12, 0.25)
    assert spec.ropes[0].q_scale == pytest.approx(1 + np.log(4) / np.log(64))
    assert "short_factor: has 8 factors for 6 pairs" in refused("phi3", own | {"rope_scaling.short_factor": SHORT})
    del own["rope_scaling.long_factor"]
    assert "long_factor: is missing" in refused("phi3", own)
