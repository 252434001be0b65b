"""Messages of errors: one printable, short line, whatever a file put into them."""

from __future__ import annotations

import pickle

import pytest

from edge.errors import BudgetError, EdgeError, SourceError


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("m.gguf: key a\nb: wrong. Fetch it", r"m.gguf: key a\nb: wrong. Fetch it"),
        ("\x1b[2J\x07", r"\x1b[2J\x07"),
        ("\u2028 \u202e \ud800", r"\u2028 \u202e \ud800"),
        ("Rifé 日本 is fine", "Rifé 日本 is fine"),
    ],
)
def test_what_cannot_be_printed_is_written_as_python_writes_it(given: str, shown: str) -> None:
    assert str(EdgeError(given)) == shown


def test_a_long_message_keeps_its_fact_and_its_next_step() -> None:
    message = str(SourceError(f"m.gguf: tensor {'x' * 100_000} is unknown. Fetch the file again"))
    assert message.startswith("m.gguf: tensor xxx") and message.endswith("is unknown. Fetch the file again")
    assert len(message) < 1000


def test_an_error_that_comes_from_another_process_says_the_same() -> None:
    error = BudgetError("a\nb")
    assert str(pickle.loads(pickle.dumps(error))) == str(error) == r"a\nb"
