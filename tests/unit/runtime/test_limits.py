"""What a runtime may be asked for, within what its engine was built for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from edge.config import AUTO, InferenceConfig
from edge.errors import RequestError
from edge.load import resolve_limits
from edge.manifest import Limits
from edge.sampling import SamplingParams

ENGINE = Limits(max_context=2048, max_step_tokens=512, max_sequences=8, max_logit_rows=8)
CONFIG = InferenceConfig.load()


def test_limits_are_those_of_the_configuration_within_the_engines() -> None:
    assert resolve_limits(ENGINE, AUTO, 1, CONFIG) == Limits(2048, 256, 1, 1)
    assert resolve_limits(ENGINE, 100, 8, CONFIG) == Limits(100, 256, 8, 8)


@pytest.mark.parametrize(
    ("context", "sequences", "numbers"), [(2049, 1, "2049.*2048"), (0, 1, "0.*2048"), (64, 9, "9.*8"), (64, 0, "0.*8")]
)
def test_more_than_the_engine_takes_is_refused_with_both_numbers(context: int, sequences: int, numbers: str) -> None:
    with pytest.raises(RequestError, match=numbers) as caught:
        resolve_limits(ENGINE, context, sequences, CONFIG)
    assert "--" not in str(caught.value), "not every caller has options"


def test_more_sequences_than_a_step_has_tokens_are_refused_with_both_numbers() -> None:
    with pytest.raises(RequestError, match="8 sequences at once: a step of the engine takes 4 tokens"):
        resolve_limits(replace(ENGINE, max_step_tokens=4), AUTO, 8, CONFIG)


def test_a_prompt_over_the_context_is_refused_with_both_numbers_and_no_option(bench_of: Callable[..., Any]) -> None:
    with pytest.raises(RequestError, match="65 tokens, the context 64") as caught:
        bench_of(context=64).runtime.submit([1] * 65, SamplingParams(), 5)
    assert "--" not in str(caught.value)
