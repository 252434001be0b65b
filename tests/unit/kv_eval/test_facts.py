"""Needles, chains and the documents in which they stand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from edge.anchors.zones import ZONES
from edge.contract import PAGE_TOKENS, SEAL_TOKENS
from edge.errors import RequestError
from edge.kv_eval.chains import KINDS, make_chains
from edge.kv_eval.haystacks import SHORTEST, Case, Haystack, haystack_tokens, make_haystack, question_room
from edge.kv_eval.needles import PER_HAYSTACK, make_needles
from edge.kv_eval.recall import make_haystacks
from edge.kv_eval.texts import Text, cut_documents
from edge.pages.geometry import sealed_end
from edge.text.located import LocatedIds

TEXT = "\n".join(f"Line {number} of a text that goes on for a while." for number in range(200))


class Letters:
    """A tokenizer whose tokens are characters; 1 is in front of every prompt."""

    def encode(self, text: str, *, specials: bool) -> list[int]:
        return [ord(char) for char in text]

    def encode_located(self, text: str, *, specials: bool) -> LocatedIds:
        return LocatedIds(self.encode(text, specials=specials), np.arange(len(text), dtype=np.int64) << 4)

    def frame(self, ids: Sequence[int]) -> list[int]:
        return [1, *ids]


def text_of(ids: Sequence[int]) -> str:
    return "".join(map(chr, ids))


@pytest.mark.parametrize("tokens", [SHORTEST + 8, 2048 + 8, 8192 - 120])
def test_every_fact_stands_whole_in_pages_that_are_sealed_before_a_question(tokens: int) -> None:
    cases = make_needles(3, 5)
    haystack = make_haystack(Letters(), Text("t", TEXT), tokens + 90, 60, tokens, cases)  # type: ignore[arg-type]
    ids = haystack.document.ids
    assert len(ids) == tokens + 90 and ids[0] == 1
    for case in cases:
        for _, fact in case.facts:
            begin = text_of(ids).index(fact)
            assert begin >= PAGE_TOKENS and begin + len(fact) <= sealed_end(tokens) * PAGE_TOKENS


def test_facts_stand_at_the_depths_that_were_asked() -> None:
    haystack = make_haystack(Letters(), Text("t", TEXT), 8192, 100, 8192 - 120, make_needles(10, 0))  # type: ignore[arg-type]
    sealed = sealed_end(haystack.stop) * PAGE_TOKENS
    for case in haystack.cases:
        ((depth, fact),) = case.facts
        assert abs(text_of(haystack.document.ids).index(fact) / sealed - depth) < 0.06


def test_a_question_passes_no_seal_border() -> None:
    for context in (640, 1000, 2048, 8192):
        tokens = haystack_tokens(context)
        assert tokens + question_room() <= (tokens // SEAL_TOKENS + 1) * SEAL_TOKENS <= context


def test_a_context_in_which_nothing_is_sealed_is_refused() -> None:
    with pytest.raises(RequestError, match=r"--context 600: needles need 640 tokens"):
        haystack_tokens(600)


LONG = 16384  # letters


def haystacks(needles: int, seed: int = 0, texts: int = 4, documents: int = 4) -> tuple[Haystack, ...]:
    every = [Text(f"t{number}", TEXT * 2) for number in range(texts)]
    return make_haystacks(Letters(), every, LONG, documents, 2000, needles, seed)  # type: ignore[arg-type]


def test_the_same_seed_gives_the_same_documents_and_another_one_others() -> None:
    assert haystacks(23, 1) == haystacks(23, 1) != haystacks(23, 2)


def test_so_many_needles_are_asked_as_were_ordered_in_documents_of_several_lengths() -> None:
    found = haystacks(100)
    needles = [sum(case.kind == "needle" for case in each.cases) for each in found]
    assert sum(needles) == 100 and max(needles) <= PER_HAYSTACK and len(found) == 8
    assert [len(each.document.ids) for each in found[:4]] == [LONG] * 4 and all(each.rows == 500 for each in found[:4])
    assert {each.stop for each in found} == {haystack_tokens(n) for n in (LONG - 500, LONG // 2, LONG // 4)}
    assert all(each.rows == 0 and each.stop == len(each.document.ids) for each in found[4:])
    assert all(tuple(case.kind for case in each.cases if case.kind != "needle") == KINDS for each in found)


def test_few_needles_stand_in_the_documents_that_are_compared_and_many_in_more_and_shorter_ones() -> None:
    assert len(haystacks(3)) == 4
    assert len(haystacks(200)) == -(-200 // PER_HAYSTACK)
    assert sum(case.kind == "needle" for each in haystacks(200) for case in each.cases) == 200


def test_without_needles_documents_are_plain_and_their_prompt_ends_where_rows_begin() -> None:
    found = haystacks(0, documents=3)
    assert [(each.cases, each.rows, each.stop) for each in found] == [((), 667, LONG - 667)] * 3
    assert all(text_of(each.document.ids[1:]) in TEXT * 2 for each in found)


def test_where_texts_give_fewer_documents_more_of_each_is_compared_but_never_more_than_a_quarter() -> None:
    def rows(text: str) -> list[int]:
        return [each.rows for each in make_haystacks(Letters(), [Text("t", text)], 4096, 4, 2000, 0, 0)]  # type: ignore[arg-type]

    assert rows(TEXT * 2) == [500] * 4 and rows(TEXT) == [1000, 1000] and rows(TEXT[:5000]) == [1024]


@pytest.mark.parametrize("seed", range(20))
def test_no_two_needles_of_a_haystack_share_a_sentence_or_a_place(seed: int) -> None:
    prefixes = [case.links[0].prefix for case in make_needles(PER_HAYSTACK, seed)]
    assert len({prefix.split()[1] for prefix in prefixes}) > PER_HAYSTACK // 2  # other words, not only other places
    assert len(set(prefixes)) == len({case.links[0].right for case in make_needles(PER_HAYSTACK, seed)}) == PER_HAYSTACK


def test_a_document_carries_the_zones_of_its_pages() -> None:
    text = Text("t", "\n".join(f"# Part {n}\n\n" + "Words that say little. " * 40 for n in range(9)))
    (document,) = cut_documents(Letters(), [text], 4096, 1)  # type: ignore[arg-type]
    assert len(document.zones) == 4096 // PAGE_TOKENS and ZONES.index("anchor") in document.zones


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
