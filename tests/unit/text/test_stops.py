"""Stop strings, wherever tokens cut them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.errors import RequestError
from edge.text.stops import StopMatcher


def run(stops: list[str], pieces: list[str]) -> tuple[list[str], bool]:
    matcher = StopMatcher(stops)
    emissions = [matcher.push(piece) for piece in pieces]
    return [*(emission.text for emission in emissions), matcher.finish()], any(emission.stopped for emission in emissions)


def test_pieces_of_a_stop_string_never_leak() -> None:
    shown, stopped = run(["DEFGHIJ"], ["ABC", "DE", "FG", "HI", "J", "K"])
    assert "".join(shown) == "ABC"
    assert stopped


def test_what_only_began_like_a_stop_string_is_shown_after_all() -> None:
    shown, stopped = run(["DEFG"], ["ABC", "DE", "F", "X", "DE"])
    assert shown == ["ABC", "", "", "DEFX", "", "DE"]
    assert not stopped


@pytest.mark.parametrize("stops", [["STOP1", "STOP2"], ["STOP2", "STOP1"]])
def test_the_earliest_match_wins_whatever_the_order(stops: list[str]) -> None:
    assert "".join(run(stops, ["a STOP2 b STOP1"])[0]) == "a "


def test_the_longest_of_those_that_end_together_wins() -> None:
    assert "".join(run(["c", "bc"], ["abc"])[0]) == "a"
    assert "".join(run(["c", "bc"], ["a", "b", "c"])[0]) == "a"


def test_a_stop_string_that_overlaps_itself_is_found() -> None:
    assert "".join(run(["aab"], ["a", "a", "a", "b", "c"])[0]) == "a"


def test_nothing_comes_behind_a_stop() -> None:
    matcher = StopMatcher(["x"])
    assert matcher.push("axb") == ("a", True)
    assert matcher.push("more") == ("", True)
    assert matcher.finish() == ""


def test_no_stops_hold_nothing_back() -> None:
    assert run([], ["a", "b"]) == (["a", "b", ""], False)


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(RequestError, match="empty"):
        StopMatcher(["a", ""])


@given(
    stops=st.lists(st.text("abé😊", min_size=1, max_size=4), min_size=1, max_size=3),
    pieces=st.lists(st.text("abcé😊", max_size=4), max_size=8),
)
def test_the_cut_depends_on_the_text_and_not_on_its_pieces(stops: list[str], pieces: list[str]) -> None:
    text = "".join(pieces)
    ends = [(end, end - len(stop)) for stop in stops for end in range(len(text) + 1) if text[:end].endswith(stop)]
    wanted = text[: min(ends)[1]] if ends else text
    shown, stopped = run(stops, pieces)
    assert ("".join(shown), stopped) == (wanted, bool(ends))
    assert "".join(run(stops, list(text))[0]) == wanted
