"""A pool that fits its load carries it beside a prefix cache: cuts go before a sequence has to, and leave whole slabs."""

from __future__ import annotations

import random

import numpy as np
import pytest
from stand_in import make_spec

from edge.config import InferenceConfig
from edge.executors.base import StepInput, StepOutput
from edge.manifest import Limits
from edge.pages.fit import fit_pool
from edge.pages.geometry import page_groups
from edge.pages.room import Room
from edge.presets import PRESETS, PresetName
from edge.runtime import Runtime
from edge.sampling import SamplingParams

CONTEXT = 4096


class Quick:
    """Says anything, at once."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)

    def run(self, step: StepInput) -> StepOutput:
        logits = self._random.normal(size=(len(step.logit_rows), 40)).astype(np.float32)
        return StepOutput(logits, np.zeros(len(step.kv_len), np.int32))

    def cancel(self) -> None: ...

    def close(self) -> None: ...


def preemptions_of_chats(preset: PresetName, sequences: int, turns: int) -> tuple[int, int, int]:
    """(preemptions, hits, prompt tokens computed) of chats that grow up to the context and begin again."""
    spec, draw = make_spec((0,) * 30, 64), random.Random(3)
    groups = page_groups(spec, PRESETS[preset])
    size = fit_pool(groups, CONTEXT, sequences, 1 << 21)
    config = InferenceConfig(CONTEXT, 256, 128, 1 << 21, "fitted", 0.92, preset, True, "uniform", False)
    runtime = Runtime(spec, Quick(), size, Limits(CONTEXT, 256, sequences, sequences), config, preset)
    texts = [draw.choices(range(40), k=CONTEXT) for _ in range(3)]
    sessions = [runtime.session() for _ in range(sequences)]
    talks: list[list[int]] = [[] for _ in sessions]
    for _ in range(turns):
        requests = []
        for i, session in enumerate(sessions):
            if not talks[i] or len(talks[i]) > CONTEXT - 420:
                talks[i] = draw.choice(texts)[: draw.randint(100, CONTEXT // 2)]
            talks[i] += draw.choices(range(40), k=draw.randint(10, 200))
            requests.append(session.submit(talks[i], SamplingParams(), 200, frozenset({3}), cuts=[len(talks[i]) - 5]))
        while runtime.has_work:
            runtime.step()
        runtime.check()
        for talk, request in zip(talks, requests, strict=True):
            talk += request.token_ids
    return runtime.stats.preemptions, runtime.stats.prefix_hits, runtime.stats.prefill_tokens


@pytest.mark.parametrize(("preset", "sequences"), [("safe", 1), ("balanced", 2), ("exact", 2)])
def test_a_fitted_pool_preempts_nobody_though_cuts_fill_it(preset: PresetName, sequences: int) -> None:
    preemptions, _, _ = preemptions_of_chats(preset, sequences, 40)
    assert preemptions == 0


def test_without_that_care_it_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Room, "scatters", lambda room, pages: False)
    assert preemptions_of_chats("safe", 1, 40)[0] > 0, "or the test above shows nothing"
