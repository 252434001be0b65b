"""From logits to a token: filters, random numbers, and logits that are not numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from edge.errors import ExecutorError, RequestError
from edge.sampling import RandomSeed, SamplingParams, logprob, sample

LOGITS = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))


def draws(params: SamplingParams, logits: np.ndarray = LOGITS, count: int = 4000) -> np.ndarray:
    """Share of each token over many positions."""
    tokens = [sample(logits, params, [], position) for position in range(count)]
    return np.bincount(tokens, minlength=len(logits)) / count


def test_temperature_0_takes_the_best_and_the_lowest_id_of_equals() -> None:
    assert sample(np.array([0, 3, 1, 3], np.float32), SamplingParams(seed=1), [], 0) == 1


def test_tokens_come_as_often_as_they_are_likely() -> None:
    np.testing.assert_allclose(draws(SamplingParams(temperature=1.0, seed=5)), [0.4, 0.3, 0.2, 0.1], atol=0.03)


def test_temperature_flattens() -> None:
    flat = np.sqrt([0.4, 0.3, 0.2, 0.1])
    np.testing.assert_allclose(draws(SamplingParams(temperature=2.0, seed=5)), flat / flat.sum(), atol=0.03)


def test_top_k_keeps_the_best_k_and_more_than_the_vocabulary_is_all() -> None:
    np.testing.assert_allclose(draws(SamplingParams(temperature=1.0, top_k=2, seed=5)), [4 / 7, 3 / 7, 0, 0], atol=0.03)
    everything = draws(SamplingParams(temperature=1.0, top_k=9_999_999, seed=5))
    np.testing.assert_array_equal(everything, draws(SamplingParams(temperature=1.0, seed=5)))


def test_top_k_breaks_ties_by_the_lowest_id() -> None:
    logits = np.random.default_rng(1).integers(0, 2, 5000).astype(np.float32)
    logits[[4000, 4500]] = 2.0
    ones = np.flatnonzero(logits == 1.0)
    params = SamplingParams(temperature=5.0, top_k=7, seed=5)
    assert {sample(logits, params, [], position) for position in range(300)} == {4000, 4500, *ones[:5].tolist()}


def test_top_p_keeps_the_fewest_that_reach_the_share() -> None:
    np.testing.assert_allclose(draws(SamplingParams(temperature=1.0, top_p=0.69, seed=5)), [4 / 7, 3 / 7, 0, 0], atol=0.03)
    np.testing.assert_allclose(draws(SamplingParams(temperature=1.0, top_p=0.71, seed=5)), [4 / 9, 3 / 9, 2 / 9, 0], atol=0.03)
    assert draws(SamplingParams(temperature=1.0, top_p=1e-9, seed=5), count=50)[0] == 1.0


def test_top_p_works_where_the_mass_is_spread_over_thousands() -> None:
    logits = np.zeros(5000, np.float32)
    tokens = {sample(logits, SamplingParams(temperature=1.0, top_p=0.5, seed=5), [], position) for position in range(2000)}
    assert max(tokens) < 2501 and len(tokens) > 1000


def test_min_p_is_relative_to_the_best() -> None:
    for more in ({}, {"top_k": 4}, {"top_p": 0.999}):
        shares = draws(SamplingParams(temperature=1.0, min_p=0.6, seed=5, **more))
        np.testing.assert_allclose(shares, [4 / 7, 3 / 7, 0, 0], atol=0.03)


def test_a_repeated_token_is_punished_once_whatever_its_sign() -> None:
    params = SamplingParams(repeat_penalty=2.0, seed=1)
    assert sample(np.array([4.0, 3.0, 0.0], np.float32), params, [0, 0, 0], 3) == 1
    assert sample(np.array([-1.0, -1.5, -9.0], np.float32), params, [0], 1) == 1
    assert sample(np.array([4.0, 1.9, 0.0], np.float32), params, [0, 0, 0], 3) == 0, "punished more than once"


def test_the_logits_are_left_as_they_were() -> None:
    logits = LOGITS.copy()
    sample(logits, SamplingParams(temperature=0.7, top_k=3, top_p=0.9, min_p=0.1, repeat_penalty=1.3, seed=1), [0, 1], 2)
    np.testing.assert_array_equal(logits, LOGITS)


def test_random_numbers_depend_on_seed_and_position_alone() -> None:
    params = SamplingParams(temperature=1.0, seed=11)
    flat = np.zeros(1000, np.float32)
    first = [sample(flat, params, [], position) for position in range(20)]
    assert first == [sample(flat, params, [], position) for position in reversed(range(20))][::-1]
    assert first != [sample(flat, SamplingParams(temperature=1.0, seed=12), [], position) for position in range(20)]
    assert len(set(first)) > 15


def test_without_a_seed_one_is_drawn_and_reported() -> None:
    drawn = {SamplingParams().with_drawn_seed().seed for _ in range(8)}
    assert len(drawn) == 8 and all(isinstance(seed, int) for seed in drawn)
    assert SamplingParams(seed=3).with_drawn_seed().seed == 3
    assert isinstance(SamplingParams().seed, RandomSeed)


@pytest.mark.parametrize("bad", [[math.nan, 1.0], [1.0, math.inf], [-math.inf, -math.inf], [1.0, math.nan]])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_numbers_are_an_error(bad: list[float], temperature: float) -> None:
    with pytest.raises(ExecutorError, match="position 7"):
        sample(np.array(bad, np.float32), SamplingParams(temperature=temperature, seed=1), [], 7)


def test_a_token_of_minus_infinity_never_comes() -> None:
    logits = np.array([0.0, -math.inf, 0.0], np.float32)
    for more in ({}, {"top_k": 2}, {"top_p": 0.99}, {"min_p": 0.01}, {"repeat_penalty": 1.5}):
        shares = [sample(logits, SamplingParams(temperature=1.0, seed=1, **more), [1], p) for p in range(200)]
        assert set(shares) == {0, 2}


@given(
    logits=hnp.arrays(np.float32, st.integers(1, 40), elements=st.floats(-(2.0**127), 2.0**127, width=32)),
    temperature=st.sampled_from([0.0, 1e-300, 1e-3, 1.0, 50.0, 1e300]),
    top_k=st.sampled_from([0, 1, 3, 10**9]),
    top_p=st.sampled_from([1e-12, 0.5, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.3, 1.0]),
    penalty=st.sampled_from([0.01, 1.0, 1.5, 100.0]),
    seed=st.integers(0, 2**64 - 1),
    position=st.integers(0, 2**31),
)
def test_any_finite_logits_and_any_parameters_give_a_token(
    logits: np.ndarray, temperature: float, top_k: int, top_p: float, min_p: float, penalty: float, seed: int, position: int
) -> None:
    params = SamplingParams(temperature, top_k, top_p, min_p, penalty, seed)
    try:
        token = sample(logits, params, [0], position)
    except ExecutorError:
        assert penalty != 1.0, "only a penalty can push a number out of range"
        return
    assert 0 <= token < len(logits)
    if temperature == 0.0 and penalty == 1.0:
        assert token == logits.argmax()


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -0.1},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"min_p": -0.1},
        {"min_p": math.nan},
        {"repeat_penalty": 0.0},
        {"repeat_penalty": math.inf},
        {"seed": -1},
        {"seed": 1 << 64},
    ],
)
def test_a_parameter_out_of_range_names_itself_and_the_range(wrong: dict[str, float]) -> None:
    with pytest.raises(RequestError, match=f"{next(iter(wrong))}.*Allowed"):
        SamplingParams(**wrong)  # type: ignore[arg-type]


def test_a_log_probability_is_a_finite_number_or_nothing() -> None:
    assert logprob(LOGITS, 1) == pytest.approx(math.log(0.3))
    assert logprob(np.array([0.0, -math.inf], np.float32), 1) is None
    assert logprob(np.array([3e38, -3e38], np.float32), 0) == pytest.approx(0.0)
