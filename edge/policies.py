"""KV policies by name: which pages are kept a step more exact than the preset. Owns: names, shares. Needs: nothing. Never:
pages (pages/policy.py)."""

from __future__ import annotations

from typing import Literal

PolicyName = Literal["uniform", "anchors", "random", "attention", "combined"]

# Of a sequence's pages, those that a policy may raise: sealed one level above the preset's.
RAISED_SHARES: dict[PolicyName, float] = {"uniform": 0.0, "anchors": 0.1, "random": 0.1, "attention": 0.1, "combined": 0.1}

# These choose by the prompt's attention, which is known when it is computed: up to then all its sealed pages are raised.
BY_ATTENTION: tuple[PolicyName, ...] = ("attention", "combined")


def peak_share(policy: PolicyName) -> float:
    """Of a sequence's pages, those that are raised at most at once, while its prompt is computed."""
    return 1.0 if policy in BY_ATTENTION else RAISED_SHARES[policy]
