"""manifest.json of packages of every engine. Owns: their folders. Needs: the tests of packages. Never: the reader."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from json_mutations import JsonSeed
from siblings import add_siblings


class ManifestTarget:
    """Opens a package whose other files are as they were."""

    def __init__(self, folder: Path) -> None:
        add_siblings()
        from engine_packages import PASSED, manifest_of, write_finished, write_rtx, write_unfinished

        cpu = folder / "cpu"
        files = {"engine/plan.json": b"{}", "engine/weights.bin": b"w", "tokenizer/tables.bin": b"t",
                 "tokenizer/tokenizer_config.json": b"{}"}  # fmt: skip
        for name, data in files.items():
            (cpu / name).parent.mkdir(parents=True, exist_ok=True)
            (cpu / name).write_bytes(data)
        manifest = manifest_of("cpu", None, files)
        manifest["verdicts"]["engine"] = PASSED
        (cpu / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        written = [cpu, *(write(folder / write.__name__) for write in (write_rtx, write_unfinished, write_finished))]
        self._packages = {package: JsonSeed(json.loads((package / "manifest.json").read_bytes())) for package in written}

    def make(self, random: Random) -> bytes:
        place = random.randrange(len(self._packages))
        seeds = list(self._packages.values())
        others = [seed.text.encode() for seed in seeds]
        return bytes([place]) + seeds[place].mutate(random, others)

    def run(self, data: bytes) -> None:
        from edge.package import Package

        folder = list(self._packages)[data[0]]
        (folder / "manifest.json").write_bytes(data[1:])
        manifest = Package.open(folder, force=True).manifest
        assert manifest.build_command
