"""KV policies by name: which pages are kept a step more exact than the preset. Owns: names, shares. Needs: nothing. Never:
pages (pages/policy.py)."""

from __future__ import annotations

from typing import Literal

PolicyName = Literal["uniform", "anchors", "random"]

# Of a sequence's pages, those that a policy may raise: sealed one level above the preset's.
RAISED_SHARES: dict[PolicyName, float] = {"uniform": 0.0, "anchors": 0.1, "random": 0.1}

# Whose pages differ from those of another prompt that begins alike, so that they do not go to the prefix cache.
UNPUBLISHED: frozenset[PolicyName] = frozenset()
