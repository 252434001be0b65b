"""Whether the TensorRT of a JetPack does the last step of a build. Owns: LINEAR_SINCE, JetPackStep. Needs: profiles. Never:
looks at this machine."""

from __future__ import annotations

from dataclasses import dataclass

from edge.devices import DeviceProfile
from edge.engine_record import version_numbers

# The first TensorRT that reads attention over linear KV; an older one needs the plugin edge::PagedAttention, which this version
# does not have.
LINEAR_SINCE = "10.15"


@dataclass(frozen=True, slots=True)
class JetPackStep:
    """Releases of JetPack that bring one TensorRT."""

    jetpacks: tuple[str, ...]  # 7.2, 7.2.1
    tensorrt: str  # 10.16.2
    finishes: bool  # False: `--finish` waits for the plugin edge::PagedAttention


def jetpack_steps(profile: DeviceProfile) -> tuple[JetPackStep, ...]:
    """What each JetPack of a board does, in the order of the profile; () for what is no board."""
    names: dict[str, list[str]] = {}
    for jetpack, tensorrt in profile.tensorrt.items():
        names.setdefault(tensorrt, []).append(jetpack)
    linear = version_numbers(LINEAR_SINCE)
    return tuple(JetPackStep(tuple(found), version, version_numbers(version) >= linear) for version, found in names.items())
