"""YAML of devices and tiers. Owns: the shipped files as seeds. Needs: mutations. Never: the reader."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

from json_mutations import LITERALS
from mutations import INVALID_TEXT, mutate_bytes

WORDS = (
    "&a", "*a", "<<: *a", "!!python/object:os.system", "!!binary aGk=", "!!timestamp 2001-99-99", "? [a]", "- ", "---",
    "...", "%YAML 9", "|", ">", "'", '"', "{", "[", "}", "]", "0x", "1_000", "1:60:60", "~", "yes", "=", "\t", "# x",
    "2001-01-01", "-.inf",
)  # fmt: skip


class YamlTarget:
    """Loads a tier or a device profile."""

    def __init__(self, folder: Path) -> None:
        from calibration.tiers import Tier
        from edge.devices import DeviceProfile
        from edge.yamls import yaml_root

        files = [yaml_root() / "tiers/int4.yaml", yaml_root() / "devices/orin-nano-8.yaml"]
        self._kinds = (Tier, DeviceProfile)
        self._seeds = [file.read_bytes() for file in files]
        self._path = folder / "fuzz.yaml"

    def make(self, random: Random) -> bytes:
        place = random.randrange(len(self._seeds))
        parts = re.split(r"(\n\s*|: |, |\[|\])", self._seeds[place].decode())
        for _ in range(random.randint(1, 3)):
            at = random.randrange(len(parts))
            parts[at] = random.choice((random.choice(LITERALS), random.choice(WORDS), "", parts[at] * 2, random.choice(parts),
                                       "[" * random.choice((1, 500, 5000))))  # fmt: skip
        data = "".join(parts).encode("utf-8")
        if random.random() < 0.2:
            data = mutate_bytes(random, data, [*self._seeds, *INVALID_TEXT], 2)
        return bytes([place]) + data

    def run(self, data: bytes) -> None:
        from edge.yamls import load_yaml

        self._path.write_bytes(data[1:])
        load_yaml(self._path, self._kinds[data[0]])
