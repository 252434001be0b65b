"""What stands side by side in a measurement: a preset with a policy. Owns: Form, names. Needs: presets, policies.
Never: pools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edge.kv_budget import KvChoice, kv_groups
from edge.pages.geometry import GroupPages
from edge.policies import RAISED_SHARES, PolicyName
from edge.presets import PRESETS, PresetName
from edge.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class Form:
    preset: PresetName
    policy: PolicyName = "uniform"

    @property
    def name(self) -> str:
        return self.preset if self.policy == "uniform" else f"{self.preset} {self.policy}"

    @property
    def raises(self) -> bool:
        """Whether some pages may be more exact than the preset."""
        return RAISED_SHARES[self.policy] > 0

    def groups(self, spec: ModelSpec) -> tuple[GroupPages, ...]:
        return kv_groups(spec, KvChoice(self.preset, policy=self.policy))


def forms_of(presets: Sequence[PresetName], policies: Sequence[PolicyName] = ()) -> tuple[Form, ...]:
    """Each preset by itself (`uniform`), and behind it with each of the other policies where it seals."""
    forms = []
    for preset in presets:
        more = [policy for policy in policies if policy != "uniform" and PRESETS[preset].seals]
        forms += [Form(preset), *(Form(preset, policy) for policy in more)]
    return tuple(forms)
