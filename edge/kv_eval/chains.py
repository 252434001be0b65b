"""Decisions that rest on facts far apart: facts to be combined, dates that were moved, terms that look alike. Owns: their
words. Needs: haystacks. Never: engines.

Each is a choice between what is right and what stands in the document too, so that a small model has a chance and a page that
was rounded too far shows.
"""

from __future__ import annotations

import random

from edge.kv_eval.haystacks import Case, Link

KINDS = ("combined", "moved", "look-alike")

_PROJECTS = ("Alder", "Birch", "Cedar", "Hazel", "Juniper", "Laurel", "Maple", "Poplar", "Rowan", "Willow")
_CITIES = ("Lisbon", "Vienna", "Oslo", "Madrid", "Dublin", "Prague", "Athens", "Warsaw", "Helsinki", "Brussels")
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November")


def make_chains(seed: int) -> list[Case]:
    """A case of each of KINDS, its facts far apart."""
    draw = random.Random(f"chains {seed}")
    projects, cities = draw.sample(_PROJECTS, 4), draw.sample(_CITIES, 2)
    return [
        _combined(draw, projects[0], projects[1], cities),
        _moved(draw, projects[2]),
        _look_alike(draw),
    ]


def _combined(draw: random.Random, project: str, other: str, cities: list[str]) -> Case:
    """Project -> office, office -> city: both links must hold."""
    office, wrong = (str(n) for n in draw.sample(range(21, 99), 2))
    facts = [
        f"Project {project} is run by office {office}.",
        f"Project {other} is run by office {wrong}.",
        f"Office {wrong} is in the city of {cities[1]}.",
        f"Office {office} is in the city of {cities[0]}.",
    ]
    links = (
        Link(f"Project {project} is run by office", f" {office}", f" {wrong}"),
        Link(
            f"Project {project} is run by office {office}. Office {office} is in the city of", f" {cities[0]}", f" {cities[1]}"
        ),
    )
    return Case("combined", tuple(zip((0.05, 0.3, 0.6, 0.85), facts, strict=True)), links)


def _moved(draw: random.Random, project: str) -> Case:
    """A date, and later another in its place."""
    first, second = draw.sample(_MONTHS, 2)
    days = draw.sample(range(1, 29), 2)
    old, new = f"{days[0]} {first}", f"{days[1]} {second}"
    facts = (
        (0.15, f"The deadline of project {project} is {old}."),
        (0.75, f"The deadline of project {project} was {old}. It was moved. The deadline of project {project} is now {new}."),
    )
    return Case("moved", facts, (Link(f"The deadline of project {project} is now", f" {new}", f" {old}"),))


def _look_alike(draw: random.Random) -> Case:
    """Two clauses whose numbers are each other's mirror."""
    a, b = draw.sample(range(2, 9), 2)
    right, wrong = (str(10 * n) for n in draw.sample(range(2, 10), 2))
    facts = [f"Clause {a}.{b}: the notice period is {right} days.", f"Clause {b}.{a}: the notice period is {wrong} days."]
    link = Link(f"Clause {a}.{b}: the notice period is", f" {right} days", f" {wrong} days")
    return Case("look-alike", tuple(zip((0.25, 0.65), facts, strict=True)), (link,))
