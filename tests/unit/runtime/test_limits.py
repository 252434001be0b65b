"""What a runtime may be asked for, within what its engine was built for."""

from __future__ import annotations

import pytest

from edge.config import AUTO, InferenceConfig
from edge.errors import RequestError
from edge.load import resolve_limits
from edge.manifest import Limits

ENGINE = Limits(max_context=2048, max_step_tokens=512, max_sequences=8, max_logit_rows=8)
CONFIG = InferenceConfig.load()


def test_limits_are_those_of_the_configuration_within_the_engines() -> None:
    assert resolve_limits(ENGINE, AUTO, 1, CONFIG) == Limits(2048, 256, 1, 1)
    assert resolve_limits(ENGINE, 100, 8, CONFIG) == Limits(100, 256, 8, 8)


@pytest.mark.parametrize(
    ("context", "sequences", "numbers"), [(2049, 1, "2049.*2048"), (0, 1, "0.*2048"), (64, 9, "9.*8"), (64, 0, "0.*8")]
)
def test_more_than_the_engine_takes_is_refused_with_both_numbers(context: int, sequences: int, numbers: str) -> None:
    with pytest.raises(RequestError, match=numbers):
        resolve_limits(ENGINE, context, sequences, CONFIG)
