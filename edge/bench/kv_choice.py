"""Which policy is worth its bytes. Owns: the comparison of policies, the choice of a default. Needs: figures of forms. Never:
measures, words for people.

A policy that raises pages holds more bytes than the preset by itself, so it stands beside `random`, which raises as many. It is
worth them where it loses less than both, beyond noise; and a default must publish to the prefix cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edge.bench.kv_rows import FormFigures
from edge.comparison import Comparison
from edge.kv_eval.noise import Difference, difference
from edge.policies import BY_ATTENTION, PolicyName
from edge.presets import PresetName

_SMALL_SHARE = 0.3  # of what a preset loses beyond the floor: on one small model less is noise (several texts, one model)
_ERRORS = 2.0  # standard errors
_SAME_BYTES = 0.01  # of them
CONTROL: PolicyName = "random"


@dataclass(frozen=True, slots=True)
class Against:
    """A form beside another one of the same preset."""

    policy: PolicyName
    other: PolicyName
    difference: Difference
    noise: float | None  # what the difference must pass, nats a row; None: too little text to tell

    @property
    def is_better(self) -> bool:
        return self.noise is not None and self.difference.mean < -self.noise

    @property
    def is_worse(self) -> bool:
        return self.noise is not None and self.difference.mean > self.noise

    def as_dict(self) -> dict[str, Any]:
        return {
            "policy": self.policy,
            "against": self.other,
            "kl_difference": self.difference.mean,
            "kl_error": self.difference.error,
            "noise": self.noise,
            "beyond_noise": self.is_better or self.is_worse,
        }


@dataclass(frozen=True, slots=True)
class PresetChoice:
    """The policies of one preset."""

    preset: PresetName
    same_bytes: tuple[PolicyName, ...]  # those that hold as many bytes as the control; with it, () where it was not measured
    other_bytes: tuple[PolicyName, ...]  # the others that raise pages
    unraised: tuple[PolicyName, ...]  # those that raised none: what they lose is what `uniform` does
    best: PolicyName | None  # of `same_bytes` but for the control, the one that loses least; None: there is none
    against: tuple[Against, ...]  # every policy that raises, beside `uniform` and the control

    @property
    def raised(self) -> tuple[PolicyName, ...]:
        return (*self.same_bytes, *self.other_bytes)

    def pair(self, policy: PolicyName, other: PolicyName) -> Against:
        return next(each for each in self.against if (each.policy, each.other) == (policy, other))

    def is_worth_it(self, policy: PolicyName) -> bool:
        """Whether its bytes buy more than they do anywhere, and buy anything."""
        return policy in self.same_bytes and self.pair(policy, CONTROL).is_better and self.pair(policy, "uniform").is_better

    def as_dict(self) -> dict[str, Any]:
        return {
            "preset": self.preset,
            "same_bytes": list(self.same_bytes),
            "other_bytes": list(self.other_bytes),
            "unraised": list(self.unraised),
            "best": self.best,
            "worth_it": [policy for policy in self.same_bytes if policy != CONTROL and self.is_worth_it(policy)],
            "against": [each.as_dict() for each in self.against],
        }


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    presets: tuple[PresetChoice, ...]
    default: PolicyName
    wins: tuple[PresetName, ...]  # presets at which it is worth its bytes; (): `uniform`, as nothing else is
    unpublished: tuple[PolicyName, ...]  # of those measured, the ones that do not publish to the prefix cache

    def as_dict(self) -> dict[str, Any]:
        return {
            "presets": [each.as_dict() for each in self.presets],
            "default": self.default,
            "wins": list(self.wins),
            "unpublished": list(self.unpublished),
        }


def choose_policy(forms: Sequence[FormFigures], floor: Comparison) -> PolicyChoice | None:
    """None where no policy but `uniform` was measured. The default is the policy that publishes and is worth its bytes at most
    presets and worse than `uniform` at none; `uniform` where there is none."""
    by_preset: dict[PresetName, list[FormFigures]] = {}
    for each in forms:
        by_preset.setdefault(each.form.preset, []).append(each)
    presets = tuple(
        _of_preset(preset, rows, floor) for preset, rows in by_preset.items() if any(row.form.raises for row in rows)
    )
    if not presets:
        return None
    policies = tuple(dict.fromkeys(each.policy for choice in presets for each in choice.against))
    unpublished = tuple(policy for policy in policies if policy in BY_ATTENTION)
    wins: Counter[PolicyName] = Counter()
    for policy in policies:
        if policy == CONTROL or policy in BY_ATTENTION:
            continue
        if not any(each.pair(policy, "uniform").is_worse for each in presets):
            wins[policy] = sum(each.is_worth_it(policy) for each in presets)
    default: PolicyName = max(wins, key=lambda policy: wins[policy]) if wins.total() else "uniform"
    won = tuple(each.preset for each in presets if default != "uniform" and each.is_worth_it(default))
    return PolicyChoice(presets, default, won, unpublished)


def _of_preset(preset: PresetName, rows: Sequence[FormFigures], floor: Comparison) -> PresetChoice:
    by_policy = {row.form.policy: row for row in rows}
    raising = [row.form.policy for row in rows if row.form.raises]
    unraised = tuple(policy for policy in raising if _is_unraised(by_policy[policy], by_policy["uniform"]))
    raised = [policy for policy in raising if policy not in unraised]
    control = by_policy[CONTROL] if CONTROL in raised else None
    same = tuple(
        policy for policy in raised if control and abs(by_policy[policy].held_bytes / control.held_bytes - 1) <= _SAME_BYTES
    )
    others: tuple[PolicyName, ...] = ("uniform", CONTROL) if CONTROL in by_policy else ("uniform",)
    against = tuple(
        _against(by_policy[policy], by_policy[other], floor) for policy in raising for other in others if policy != other
    )
    candidates = [row for row in rows if row.form.policy in same and row.form.policy != CONTROL]
    best = min(candidates, key=lambda row: row.kl_mean).form.policy if candidates else None
    return PresetChoice(preset, same, tuple(policy for policy in raised if policy not in same), unraised, best, against)


def _is_unraised(row: FormFigures, uniform: FormFigures) -> bool:
    """Whether a policy kept no page above the preset. Those by attention raise pages while a prompt is computed, which leaves
    other numbers behind."""
    if row.likeness.kv_bytes != uniform.likeness.kv_bytes:
        return False
    return row.form.policy in BY_ATTENTION or row.likeness.comparison == uniform.likeness.comparison


def _against(row: FormFigures, other: FormFigures, floor: Comparison) -> Against:
    found = difference(row.likeness.blocks, other.likeness.blocks)
    noise = None
    if found.error is not None:
        noise = max(_SMALL_SHARE * (other.kl_mean - floor.kl_mean), _ERRORS * found.error)
    return Against(row.form.policy, other.form.policy, found, noise)
