"""The Jetson that this machine is, if it is one. Owns: Board, what its files say. Needs: dpkg. Never: a command, a driver.

/proc/device-tree/model         its name
/proc/device-tree/compatible    module (p3767-0003) and chip (tegra234), from the most special to the most general
/etc/nv_tegra_release           Jetson Linux: "# R36 (release), REVISION: 4.3, ..."
/var/lib/dpkg/status            the same as the version of nvidia-l4t-core, in a container
                                (Docker hides the device tree there: /proc/device-tree leads into /sys/firmware, which it masks)
/etc/nvpmodel.conf              power modes: "< POWER_MODEL ID=0 NAME=15W >"
/var/lib/nvpmodel/status        the current one: "pmode:0002"
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from edge import dpkg

GENERIC = "jetson-generic"

_ORIN = "tegra234"  # the chip of every Orin, compute capability 8.7

# The module of a board and its profile, by the part numbers of Jetson Linux (Developer Guide, Quick Start, "Jetson modules");
# p3767-0002 by the kernel's list (Documentation/devicetree/bindings/arm/tegra.yaml).
MODULES = {
    "p3701-0005": "orin-agx-64",
    "p3701-0004": "orin-agx-32",
    "p3701-0000": "orin-agx-devkit-32",
    "p3701-0008": "orin-agx-industrial",
    "p3767-0000": "orin-nx-16",
    "p3767-0002": "orin-nx-16",
    "p3767-0001": "orin-nx-8",
    "p3767-0003": "orin-nano-8",
    "p3767-0005": "orin-nano-8",  # of the developer kit
    "p3767-0004": "orin-nano-4",
}

_CHIP = re.compile(r"tegra\d+")
_RELEASE = re.compile(r"#\s*R(\d+) \(release\), REVISION: ([\d.]+)")
_CORE_PACKAGE = "nvidia-l4t-core"
_CORE_VERSION = re.compile(r"([\d.]+)-")
_MODE = re.compile(r"<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+?)\s*>")
_STATUS = re.compile(r"pmode:(\d+)")

# Jetson Linux and the JetPack that brings it, https://developer.nvidia.com/embedded/jetpack-archive
JETPACKS = {
    "36.2.0": "6.0",
    "36.3.0": "6.0",
    "36.4.0": "6.1",
    "36.4.2": "6.1",
    "36.4.3": "6.2",
    "36.4.4": "6.2.1",
    "36.4.7": "6.2.1",
    "36.5.0": "6.2.2",
    "38.2.0": "7.0",
    "38.2.1": "7.0",
    "38.2.2": "7.0",
    "38.4.0": "7.1",
    "39.2.0": "7.2",
    "39.2.1": "7.2.1",
}


@dataclass(frozen=True, slots=True)
class Board:
    """A Jetson, as its own files describe it."""

    title: str  # NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super
    chip: str | None  # tegra234; None: its device tree is hidden, as in a container
    target: str | None  # the profile that stands for it; None: engines are not built for this chip, or it is not known
    is_known: bool  # False: `target` is the generic profile
    jetson_linux: str | None  # 36.4.3; None: nothing tells
    jetpack: str | None  # 6.2; None: unknown
    power_mode: str | None  # MAXN_SUPER; None: nvpmodel does not tell


def find_board(root: Path = Path("/")) -> Board | None:
    """The board that the files under `root` describe. None: not a Jetson."""
    compatible = _read(root / "proc/device-tree/compatible").replace("\0", " ")
    chip = _CHIP.search(compatible)
    jetson_linux = _jetson_linux(root)
    if chip is None and (compatible or jetson_linux is None):
        return None
    target = _target_of(compatible) if chip is not None and chip[0] == _ORIN else None
    nameless = "a Jetson without a name" if chip is not None else "a Jetson whose device tree is hidden"
    return Board(
        title=_read(root / "proc/device-tree/model").rstrip("\0\n") or nameless,
        chip=None if chip is None else chip[0],
        target=target,
        is_known=target is not None and target != GENERIC,
        jetson_linux=jetson_linux,
        jetpack=None if jetson_linux is None else _jetpack_of(jetson_linux),
        power_mode=_power_mode(root),
    )


def _target_of(compatible: str) -> str:
    return next((target for module, target in MODULES.items() if module in compatible), GENERIC)


def _jetson_linux(root: Path) -> str | None:
    release = _RELEASE.search(_read(root / "etc/nv_tegra_release"))
    if release is not None:
        return f"{release[1]}.{release[2]}"
    package = _CORE_VERSION.match(dpkg.installed_version(root / dpkg.STATUS, _CORE_PACKAGE) or "")
    return None if package is None else package[1]


def _jetpack_of(jetson_linux: str) -> str | None:
    """Also of a release with two numbers: 36.4 is 36.4.0."""
    return JETPACKS.get(jetson_linux) or JETPACKS.get(f"{jetson_linux}.0")


def _power_mode(root: Path) -> str | None:
    current = _STATUS.search(_read(root / "var/lib/nvpmodel/status"))
    if current is None:
        return None
    names = {int(number): name for number, name in _MODE.findall(_read(root / "etc/nvpmodel.conf"))}
    return names.get(int(current[1]))


def _read(path: Path) -> str:
    """ "" where the file is not there, or not for us."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
