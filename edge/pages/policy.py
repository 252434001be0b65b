"""At which level a page is sealed, and which pages give way when the pool is full. Owns: the policies. Needs: zones,
geometry. Never: pools, text."""

from __future__ import annotations

import numpy as np

from edge.anchors.zones import ANCHOR, BACKGROUND, RECENT, SECTION, SINK, ZONES
from edge.errors import RequestError
from edge.pages.geometry import sealed_end
from edge.policies import BY_ATTENTION, RAISED_SHARES, PolicyName

# Zones whose pages are demoted when the pool is full, in this order; those of the others never.
DEMOTED_ZONES = (BACKGROUND, SECTION)


def read_zones(zones: bytes) -> np.ndarray:
    """uint8 [pages] of a byte a page. RequestError where one is no zone."""
    row = np.frombuffer(zones, np.uint8)
    if len(row) and row.max() >= len(ZONES):
        known = f"Zones are 0 to {len(ZONES) - 1}: {', '.join(ZONES)}"
        raise RequestError(f"page {int(row.argmax())} has the zone {row.max()}. {known}")
    return row


def kept_pages(zones: np.ndarray) -> int:
    """Pages of a sequence that are never demoted."""
    return int((~np.isin(zones, DEMOTED_ZONES)).sum())


def seal_levels(policy: PolicyName, zones: np.ndarray, base: int, prompt_tokens: int = 0) -> np.ndarray:
    """uint8 [pages]: the level at which each page is sealed, `base` being the preset's. `zones` is uint8 [pages].

    uniform    the preset's
    anchors    pages in the zone `anchor` one level up, evenly chosen where they are more than the share allows
    random     a control: as many pages one level up as with `anchors`, wherever they lie. Equal zones give equal pages
    attention, combined  those that are sealed while the prompt, of `prompt_tokens`, is computed one level up; `kept_raised`
               says which of them stay there
    """
    if policy in BY_ATTENTION:
        in_prompt = sealed_end(max(0, prompt_tokens - 1)) if base else 0
        levels = np.full(max(len(zones), in_prompt), base, np.uint8)
        levels[:in_prompt] -= 1
        return levels
    levels = np.full(len(zones), base, np.uint8)
    anchors = np.flatnonzero(zones == ANCHOR)
    count = min(len(anchors), int(RAISED_SHARES[policy] * len(zones)))
    if not count or not base:  # nothing is above fp16
        return levels
    if policy == "anchors":
        raised = anchors[np.arange(count) * len(anchors) // count]
    else:
        sealed = np.flatnonzero((zones != SINK) & (zones != RECENT))
        raised = np.random.default_rng(len(zones)).permutation(sealed)[:count]
    levels[raised] = base - 1
    return levels


def kept_raised(policy: PolicyName, mass: np.ndarray, zones: np.ndarray, raised: np.ndarray, count: int) -> np.ndarray:
    """Of a layer group's pages `raised`, ascending, those that keep their level: `count` at most, ascending. `mass` is int64
    [pages], what the prompt's last tokens give to each, `zones` uint8 [pages].

    attention  those with the most mass; of equal ones the later
    combined   half of them so; then pages in the zone `anchor`, evenly chosen, and where these are fewer, again by mass
    """
    by_mass = raised[np.lexsort((raised, mass[raised]))[::-1]].tolist()
    chosen = by_mass[: count - count // 2 if policy == "combined" else count]
    if policy == "combined":
        anchors = [page for page in raised[zones[raised] == ANCHOR].tolist() if page not in chosen]
        taken = min(len(anchors), count // 2)
        chosen += [anchors[i * len(anchors) // taken] for i in range(taken)]
        chosen += [page for page in by_mass if page not in chosen]
    return np.array(sorted(chosen[:count]), np.int64)
