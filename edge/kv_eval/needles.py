"""Needles: single facts at several depths. Owns: their words. Needs: haystacks. Never: engines.

In a haystack no two needles have the same sentence or the same place: a small model mixes up codes of one sentence, with exact
pages too, and what it mixes up says nothing about pages.
"""

from __future__ import annotations

import random

from edge.kv_eval.haystacks import Case, Link

KIND = "needle"

_SENTENCES = (
    "The access code of the {} is",
    "The telephone number of the {} is",
    "The safe in the {} opens with",
    "The parcel for the {} has the tracking number",
    "The {} was sold for the price of",
    "The bus to the {} has the licence plate",
    "The alarm in the {} stops with",
    "The key to the {} bears the mark",
    "The clock in the {} has the serial number",
    "The wireless network of the {} has the password",
    "The bank account of the {} has the number",
    "The last invoice of the {} was number",
    "The water meter of the {} shows",
    "The visitors of the {} were counted as",
    "The postal code of the {} is",
    "The radio of the {} uses the channel",
)
PER_HAYSTACK = len(_SENTENCES)

_PLACES = (
    "harbour", "tower", "library", "garden", "bridge", "museum", "station", "market", "chapel", "quarry", "castle", "orchard",
    "lighthouse", "windmill", "theatre", "brewery", "hospital", "airport", "shipyard", "vineyard", "monastery", "stadium",
)  # fmt: skip


def make_needles(count: int, seed: int) -> list[Case]:
    """`count` numbers of so many different places in as many sentences, evenly over the sealed part of a document."""
    assert count <= PER_HAYSTACK
    draw = random.Random(f"needles {seed}")
    cases = []
    for number, (sentence, place) in enumerate(zip(draw.sample(_SENTENCES, count), draw.sample(_PLACES, count), strict=True)):
        code = str(draw.randrange(10000, 100000))
        prefix = sentence.format(place)
        depth = 0.95 * (number + 0.5) / count
        cases.append(Case(KIND, ((depth, f"{prefix} {code}."),), (Link(prefix, f" {code}"),)))
    return cases
