"""Needles, chains and the documents in which they stand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from edge.contract import PAGE_TOKENS, SEAL_TOKENS
from edge.errors import RequestError
from edge.kv_eval.chains import KINDS, make_chains
from edge.kv_eval.haystacks import SHORTEST, Case, haystack_tokens, make_haystack, question_room
from edge.kv_eval.needles import PER_HAYSTACK, make_needles
from edge.kv_eval.recall import make_haystacks
from edge.kv_eval.texts import Text, cut_documents
from edge.pages.geometry import sealed_end

TEXT = "\n".join(f"Line {number} of a text that goes on for a while." for number in range(200))


class Letters:
    """A tokenizer whose tokens are characters; 1 is in front of every prompt."""

    def encode(self, text: str, *, specials: bool) -> list[int]:
        return [ord(char) for char in text]

    def frame(self, ids: Sequence[int]) -> list[int]:
        return [1, *ids]


def text_of(ids: Sequence[int]) -> str:
    return "".join(map(chr, ids))


@pytest.mark.parametrize("tokens", [SHORTEST + 8, 2048 + 8, 8192 - 120])
def test_every_fact_stands_whole_in_pages_that_are_sealed_before_a_question(tokens: int) -> None:
    cases = make_needles(3, 5)
    haystack = make_haystack(Letters(), TEXT, tokens, cases, 1)  # type: ignore[arg-type]
    assert len(haystack.ids) == tokens and haystack.ids[0] == 1
    for case in cases:
        for _, fact in case.facts:
            begin = text_of(haystack.ids).index(fact)
            assert begin >= PAGE_TOKENS and begin + len(fact) <= sealed_end(tokens) * PAGE_TOKENS


def test_facts_stand_at_the_depths_that_were_asked() -> None:
    haystack = make_haystack(Letters(), TEXT, 8192 - 120, make_needles(10, 0), 1)  # type: ignore[arg-type]
    sealed = sealed_end(len(haystack.ids)) * PAGE_TOKENS
    for case in haystack.cases:
        ((depth, fact),) = case.facts
        assert abs(text_of(haystack.ids).index(fact) / sealed - depth) < 0.06


def test_a_question_passes_no_seal_border() -> None:
    for context in (640, 1000, 2048, 8192):
        tokens = haystack_tokens(context)
        assert tokens + question_room() <= (tokens // SEAL_TOKENS + 1) * SEAL_TOKENS <= context


def test_a_context_in_which_nothing_is_sealed_is_refused() -> None:
    with pytest.raises(RequestError, match=r"--context 600: needles need 640 tokens"):
        haystack_tokens(600)


def test_the_same_seed_gives_the_same_documents_and_another_one_others() -> None:
    def documents(seed: int) -> list[tuple[int, ...]]:
        return [h.ids for h in make_haystacks(Letters(), [Text("t", TEXT)], 4096, 23, seed)]  # type: ignore[arg-type]

    assert documents(1) == documents(1) != documents(2)


def test_so_many_needles_are_asked_as_were_ordered_in_documents_of_several_lengths() -> None:
    haystacks = make_haystacks(Letters(), [Text("t", TEXT)], 4096, 104, 0)  # type: ignore[arg-type]
    needles = [sum(case.kind == "needle" for case in h.cases) for h in haystacks]
    assert sum(needles) == 104 and max(needles) <= PER_HAYSTACK
    assert {len(h.ids) for h in haystacks} == {haystack_tokens(n) for n in (4096, 2048, 1024)}
    assert all(tuple(case.kind for case in h.cases if case.kind != "needle") == KINDS for h in haystacks)


@pytest.mark.parametrize("seed", range(50))
def test_right_and_wrong_both_stand_in_the_facts_and_differ(seed: int) -> None:
    for case in make_chains(seed):
        facts = " ".join(fact for _, fact in case.facts)
        for link in case.links:
            assert link.wrong is not None and link.right != link.wrong
            assert link.right in facts and link.wrong in facts


@pytest.mark.parametrize("seed", range(50))
def test_what_is_right_follows_from_the_facts(seed: int) -> None:
    """The last sentence that begins like the question, goes on like the right answer."""
    cases: list[Case] = [*make_needles(4, seed), *make_chains(seed)]
    for case in cases:
        facts = " ".join(fact for _, fact in sorted(case.facts))
        for link in case.links:
            question = link.prefix.rpartition(". ")[2]
            assert facts[facts.rindex(question) + len(question) :].startswith(link.right)


def test_documents_are_taken_from_each_text_in_turn_and_never_cut_short() -> None:
    texts = [Text("a", "x" * 250), Text("b", "y" * 130), Text("c", "z" * 50)]
    documents = cut_documents(Letters(), texts, 101, 4)  # type: ignore[arg-type]
    assert [d.text for d in documents] == ["a", "b", "a"]
    assert all(len(d.ids) == 101 and d.ids[0] == 1 for d in documents)


def test_texts_that_are_too_short_are_named_with_their_lengths() -> None:
    with pytest.raises(RequestError, match=r"--context 600: no text is that long \(tokens: a 250\)"):
        cut_documents(Letters(), [Text("a", "x" * 250)], 600, 4)  # type: ignore[arg-type]
