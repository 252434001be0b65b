"""plan.json of a CPU engine, down to the native core. Owns: an engine folder. Needs: the tiny models. Never: the reader."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random

from json_mutations import JsonSeed
from siblings import add_siblings

TOKENS = 8


class PlanTarget:
    """Opens an engine over weights that stay as they are, and runs a step where it opens."""

    def __init__(self, folder: Path) -> None:
        add_siblings()
        from built_engine import build_engine
        from synthetic import GEMMA, write_tiny

        from edge.manifest import Limits
        from edge.teacher import teacher_pool_bytes

        small = replace(GEMMA, hidden=32, feed_forward=32, heads=2, head_dim=8, layers=2, full_every=2)
        built = build_engine(write_tiny(folder / "tiny.gguf", small), "int4", folder)
        self._folder, self._spec = built.folder, built.spec
        self._path = built.folder / "plan.json"
        self._seed = JsonSeed(json.loads(self._path.read_bytes()))
        self._limits = Limits(TOKENS, TOKENS, 1, TOKENS)
        self._pool_bytes = teacher_pool_bytes(self._spec, TOKENS)

    def make(self, random: Random) -> bytes:
        return self._seed.mutate(random)

    def run(self, data: bytes) -> None:
        from edge.errors import ExecutorError
        from edge.executors.native import NativeExecutor
        from edge.teacher import Teacher

        self._path.write_bytes(data)
        executor = NativeExecutor.open(self._folder, self._spec, self._limits, pool_bytes=self._pool_bytes, threads=1)
        try:
            for _ in Teacher(executor, self._spec, TOKENS, TOKENS).rows([1, 2, 3]):
                pass
        except ExecutorError as error:
            if "numbers that are not finite" not in str(error):  # a plan that is whole, with a factor that is too large
                raise
        finally:
            executor.close()
