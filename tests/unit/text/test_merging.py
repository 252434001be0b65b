"""Merging symbols to tokens: the order, and the time that long texts take."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_tokenizers import NORMAL, with_tokens, written

from edge.text import merging, run_merging
from edge.text.merging import merge_symbols
from edge.text.tokenizer import Tokenizer
from edge.text.tokenizer_config import read_config, write_config
from engines.sources.base import TokenizerParts


class Ranks:
    """Merges of four symbols: any ranks, ties and results of a lower rank than their parts among them."""

    def __init__(self, ranks: dict[tuple[int, int], int]) -> None:
        self.ranks = ranks

    def merge(self, left: int, right: int) -> int | None:
        return self.ranks.get((left, right))


@given(
    ranks=st.dictionaries(
        st.tuples(st.integers(0, 3), st.integers(0, 3)),
        st.builds(lambda rank, result: rank << 32 | result, st.integers(0, 3), st.integers(0, 3)),
    ),
    symbols=st.lists(st.integers(-1, 3), max_size=14),
)
def test_merging_goes_by_rank_and_from_the_left(ranks: dict[tuple[int, int], int], symbols: list[int]) -> None:
    wanted = [(symbol, place, place + 1) for place, symbol in enumerate(symbols)]
    while True:
        pairs = [(left[0], right[0]) for left, right in itertools.pairwise(wanted)]
        found = [(ranks[pair] >> 32, place) for place, pair in enumerate(pairs) if pair in ranks]
        if not found:
            break
        _, place = min(found)
        (left, begin, _), (right, _, end) = wanted[place : place + 2]
        wanted[place : place + 2] = [(ranks[left, right] & 0xFFFFFFFF, begin, end)]
    assert merge_symbols(Ranks(ranks), symbols) == wanted


@settings(max_examples=300)
@given(
    ranks=st.dictionaries(
        st.tuples(st.integers(0, 2), st.integers(0, 2)),
        st.builds(lambda rank, result: rank << 32 | result, st.integers(0, 2), st.integers(0, 2)),
        min_size=3,
    ),
    word=st.lists(st.integers(-1, 2), min_size=2, max_size=5),
    times=st.integers(1, 4),
    tail=st.lists(st.integers(-1, 2), max_size=3),
)
def test_merging_all_pairs_of_a_rank_at_once_changes_no_id(
    ranks: dict[tuple[int, int], int], word: list[int], times: int, tail: list[int]
) -> None:
    symbols = word * times + tail
    wanted = merge_symbols(Ranks(ranks), symbols)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "LONG_PIECE", 0)
        patch.setattr(run_merging, "LEAST_SYMBOLS", 2)
        assert merge_symbols(Ranks(ranks), symbols) == wanted


@pytest.mark.parametrize("word", ["a", "the", "Hello", "\u00e9", "\u4f60\u597d", "h e"])
def test_a_text_that_repeats_itself_takes_no_steps_for_its_length(
    byte_parts: TokenizerParts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    steps = 0

    def counted(heap: list[int]) -> int:
        nonlocal steps
        steps += 1
        return heapq.heappop(heap)

    monkeypatch.setattr(merging, "heappop", counted)
    tokenizer = Tokenizer.open(runs_folder(byte_parts, tmp_path))
    taken = []
    for times in (5000, 50_000):
        steps = 0
        ids = tokenizer.encode(word * times, specials=False)
        assert tokenizer.decode(ids) == word * times
        taken.append(steps)
    assert taken[1] <= taken[0] + run_merging.LEAST_SYMBOLS


def runs_folder(parts: TokenizerParts, folder: Path) -> Path:
    """A tokenizer that joins runs of `a`, and cuts no words."""
    merges = ["a a", "aa aa", "aaaa aaaa"]
    tokens = [(merge.replace(" ", ""), NORMAL, 0.0) for merge in merges]
    written(replace(with_tokens(parts, *tokens), merges=(*parts.merges, *merges)), folder)
    write_config(folder, replace(read_config(folder), split=("\\A[\\s\\S]*",)))
    return folder


def test_a_long_word_takes_time_in_proportion(piece_tokenizer: Tokenizer) -> None:
    text = "the" * 20000  # quadratic merging would take minutes
    assert piece_tokenizer.decode(piece_tokenizer.encode(text, specials=False)) == text
