"""What `edge bench kv` reads of its options."""

from __future__ import annotations

import click
import pytest

from edge.cli.bench_kv import command


def values(*words: str) -> dict[str, object]:
    return command.make_context("kv", ["a.edge", *words]).params


def test_names_of_an_option_that_is_repeated_count_together() -> None:
    found = values("--presets", "tight", "--presets", "safe", "--policies", "random", "--policies", "anchors,combined")
    assert found["presets"] == ("exact", "safe", "tight") and found["policies"] == ("anchors", "random", "combined")


def test_without_names_presets_are_those_of_the_engine_and_policies_all() -> None:
    found = values()
    assert found["presets"] is None and found["policies"] == ("uniform", "anchors", "random", "attention", "combined")


@pytest.mark.parametrize(
    "words", [("--presets", "tight,tight"), ("--presets", "safe", "--presets", "safe"), ("--policies", "random,random")]
)
def test_a_name_that_is_given_twice_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(click.BadParameter, match="is given twice"):
        values(*words)


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(click.BadParameter, match="'low' is not one of exact, safe, balanced, tight"):
        values("--presets", "low")
