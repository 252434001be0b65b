"""Anchors of whole texts: what adds up, what does not matter, and how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hostile import MEGABYTE, TEXTS
from hypothesis import given
from hypothesis import strategies as st

from edge.anchors.config import AnchorConfig, Weights
from edge.anchors.detect import Anchors, find_anchors
from edge.anchors.phrases import Phrases, load_phrases
from edge.anchors.signals import DEEPEST, SIGNALS

PIECES = st.sampled_from([
    "# a", "## b", "===", "---", "```", "1. x", "1.1 y", "2. z", "Section 3", "第三条", "<h1>t</h1>", "<!--", "-->", "\f",
    "User: a", "a b c.", "Title", "\n", "\n\n", "\r\n", "\r", " ", "\t", "> ", "- ", "é", "😀", "\u202e", "\ufeff",
    "a" * 1200 + ". B",
])  # fmt: skip
ANY = st.lists(st.one_of(PIECES, st.text(st.characters(exclude_categories=("Cs",)), max_size=5)), max_size=30).map("".join)
CONFIG, PHRASES = AnchorConfig.load(), load_phrases()


@given(text=ANY)
def test_anchors_of_any_text_are_in_order_and_inside(text: str) -> None:
    anchors = find_anchors(text, CONFIG, PHRASES)
    assert (np.diff(anchors.positions) > 0).all()
    assert ((anchors.positions >= 0) & (anchors.positions < max(len(text), 1)) & (anchors.ends <= len(text))).all()
    assert (anchors.ends >= anchors.positions).all()
    assert ((anchors.levels >= 1) & (anchors.levels <= DEEPEST)).all()
    for found in anchors.places:
        assert (np.diff(found.positions) > 0).all()
    for place in anchors.positions:
        assert not text[place].isspace()


def test_weights_add_up_and_decide(anchors_of: Callable[[str], Anchors], config: AnchorConfig, phrases: Phrases) -> None:
    text = "".join(
        f"{i}. Title of a Part\n\nA paragraph of many words that says nothing, but it takes some room here.\n\n"
        for i in (1, 2, 3)
    )
    strengths = anchors_of(text).strengths
    assert np.allclose(strengths, config.weights.numbering + config.weights.title)
    none = replace(config, weights=Weights(*[0.0] * len(SIGNALS)))
    assert len(find_anchors(text, none, phrases)) == 0
    weak = replace(config, weights=replace(config.weights, numbering=0.2, title=0.3))
    assert len(find_anchors(text, weak, phrases)) == 3


@pytest.mark.parametrize(
    ("change", "says"),
    [({"least": 0.0}, "least"), ({"anchor_window": -1}, "anchor_window"), ({"depth_words": 0}, "depth_words")],
)
def test_numbers_out_of_range_are_refused(change: dict[str, float], says: str, config: AnchorConfig) -> None:
    with pytest.raises(ValueError, match=says):
        replace(config, **change)
    with pytest.raises(ValueError, match="title"):
        replace(config.weights, title=1.5)


def test_a_change_of_topic_cuts_a_long_section(config: AnchorConfig, phrases: Phrases) -> None:
    rng = np.random.default_rng(0)
    topics = (
        ["sail", "mast", "rope", "wind", "deck", "keel", "port", "helm"],
        ["cell", "gene", "acid", "lipid", "enzyme", "virus", "serum", "tissue"],
    )
    paragraphs = [
        " ".join(rng.choice(topics[part], 60)).capitalize() + "." for part in (0, 1, 0) for _ in range(25)
    ]  # fmt: skip
    text = "\n\n".join(paragraphs)
    anchors = find_anchors(text, config, phrases)
    borders = [text.index(paragraphs[25]), text.index(paragraphs[50])]
    assert anchors.positions.tolist() == borders
    assert anchors.levels.tolist() == [DEEPEST, DEEPEST]
    assert len(find_anchors(text, replace(config, section_chars=100_000), phrases)) == 0


def test_text_of_right_to_left_scripts_has_anchors(anchors_of: Callable[[str], Anchors]) -> None:
    body = "هذا نص طويل جدا يتحدث عن السفن والبحار والرياح والموانئ البعيدة، ولا شيء غير ذلك في هذا الكتاب القديم.\n\n"
    text = f"مقدمة\n\n{body}الفصل الثاني\n\n{body}"
    assert [text[place:].split("\n")[0] for place in anchors_of(text).positions] == ["مقدمة", "الفصل الثاني"]


@pytest.mark.parametrize("name", TEXTS)
def test_time_grows_with_the_length_and_no_faster(name: str, anchors_of: Callable[[str], Anchors]) -> None:
    """A quarter of a megabyte; what is slower than 2 s here would be quadratic (python tests/anchors --speed measures)."""
    text = TEXTS[name](MEGABYTE // 4)
    begin = time.process_time()
    anchors_of(text)
    assert time.process_time() - begin < 2.0
