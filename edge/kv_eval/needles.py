"""Needles: single facts at several depths. Owns: their words. Needs: haystacks. Never: engines."""

from __future__ import annotations

import random

from edge.kv_eval.haystacks import Case, Link

KIND = "needle"
PER_HAYSTACK = 10

_PLACES = (
    "harbour", "tower", "library", "garden", "bridge", "museum", "station", "market", "chapel", "quarry", "castle", "orchard",
    "lighthouse", "windmill", "theatre", "brewery", "hospital", "airport", "shipyard", "vineyard", "monastery", "stadium",
)  # fmt: skip


def make_needles(count: int, seed: int) -> list[Case]:
    """`count` codes of so many different places, evenly over the sealed part of a document."""
    assert count <= len(_PLACES)
    draw = random.Random(f"needles {seed}")
    places = draw.sample(_PLACES, count)
    cases = []
    for number, place in enumerate(places):
        code = str(draw.randrange(10000, 100000))
        prefix = f"The access code of the {place} is"
        depth = 0.95 * (number + 0.5) / count
        cases.append(Case(KIND, ((depth, f"{prefix} {code}."),), (Link(prefix, f" {code}"),)))
    return cases
