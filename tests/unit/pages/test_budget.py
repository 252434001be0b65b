"""The size of the pool: what is shipped, and the rules one can choose."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from edge.config import InferenceConfig
from edge.errors import BudgetError, ConfigError
from edge.pages.budget import plan_pool
from edge.pages.fit import pool_holds
from edge.pages.geometry import page_groups
from edge.presets import PRESETS
from edge.spec import LayerSpec, ModelSpec, RopeSpec
from edge.yamls import load_yaml, yaml_root

SPEC = ModelSpec(
    name="smol",
    architecture="llama",
    vocab_size=64,
    hidden_size=64,
    intermediate_size=64,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    layers=(LayerSpec(0, 0),) * 30,
    ropes=(RopeSpec(64, 10000.0, ()),),
    context_length=8192,
    norm_epsilon=1e-5,
    activation="silu",
    attention_scale=0.125,
    embedding_scale=1.0,
    qk_norm=False,
    post_norms=False,
    tied_head=True,
)
CONFIG = InferenceConfig.load()
EXACT = page_groups(SPEC, PRESETS["exact"])


def test_the_fitted_pool_is_what_the_load_needs_and_no_more_than_a_few_percent_above() -> None:
    size = plan_pool(EXACT, 4096, 2, CONFIG)
    assert pool_holds(EXACT, size, 4096, 2) and not pool_holds(EXACT, size, 4096 + 512, 2)
    assert 1.0 <= size.pool_bytes / (2 * 4096 * 30 * 3 * 64 * 2 * 2) < 1.05


def test_the_rule_of_the_articles_does_not_ask_for_the_model() -> None:
    config = dataclasses.replace(CONFIG, pool_rule="articles")
    size = plan_pool(EXACT, 8192, 1, config)
    assert 0 <= (8 * 64 + 2048 << 20) - size.pool_bytes < size.slab_bytes


def test_a_load_beyond_the_page_table_is_refused() -> None:
    with pytest.raises(BudgetError, match="64 GiB"):
        plan_pool(EXACT, 1 << 22, 1, CONFIG)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("chunk_tokens: 128", "chunk_tokens: 129", "chunk_tokens must be 1 to 128"),
        ("slab_bytes: 2097152", "slab_bytes: 1000", "slab_bytes must be a multiple of 256"),
        ("pool_rule: fitted", "pool_rule: fited", "Did you mean 'fitted'"),
        ("pool_warn_share: 0.92", "pool_warn_share: 92", "pool_warn_share must be above 0 and at most 1"),
        ("kv_preset: safe", "kv_preset: save", "kv_preset"),
        ("context: 4096", "contxt: 4096", "Did you mean 'context'"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    shipped = (yaml_root() / "runtime" / "inference.yaml").read_text(encoding="utf-8")
    assert old in shipped
    path = tmp_path / "inference.yaml"
    path.write_text(shipped.replace(old, new), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_yaml(path, InferenceConfig)
    assert message in str(caught.value)
