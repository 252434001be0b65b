"""Which presets there are, which of them a model's heads allow, and which one is taken."""

from __future__ import annotations

import pytest

from edge.errors import RequestError
from edge.presets import LEVELS, PRESETS, default_preset, presets_for


def test_keys_are_never_kept_more_coarsely_than_values() -> None:
    order = ["fp16", "int8", "int4", "int2"]
    for preset in PRESETS.values():
        assert order.index(preset.key_format) <= order.index(preset.value_format)
        assert preset.seals == (preset.value_format != "fp16")


@pytest.mark.parametrize(
    ("head_dim", "offered"),
    [
        (64, ("exact", "safe", "balanced", "tight")),
        (256, ("exact", "safe", "balanced", "tight")),
        (80, ("exact", "safe", "balanced")),  # int2 wants whole groups of 32
        (36, ("exact",)),
    ],
)
def test_heads_whose_words_would_not_be_whole_keep_fp16(head_dim: int, offered: tuple[str, ...]) -> None:
    assert presets_for(head_dim) == offered


def test_the_levels_of_the_articles_are_presets() -> None:
    assert LEVELS == {"high": "exact", "medium": "safe", "low": "balanced"}


def test_where_the_default_is_not_offered_the_next_more_exact_one_is_taken() -> None:
    assert default_preset("safe", ("exact", "safe", "tight")) == "safe"
    assert default_preset("balanced", ("exact", "tight")) == "exact"
    assert default_preset("exact", ("exact", "safe")) == "exact"
    with pytest.raises(RequestError, match=r"neither it nor a more exact one\. Ask for one: --kv-preset balanced"):
        default_preset("safe", ("balanced", "tight"))
