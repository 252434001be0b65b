"""The prefix cache on a real engine: a hit equals a miss to the bit, whatever runs beside it; a chat says what it reused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from edge_process import Edge
from synthetic import TinyModel

pytest.importorskip("edge._core", reason="needs the native core: pip install .")
pytest.importorskip("onnxruntime", reason="needs the build extra")

from built_engine import Built
from test_presets_end_to_end import ASKED, MODELS, TOKENS, BuildOf, alone, answers, open_runtime, prompt

from edge.pages import read_budget
from edge.presets import PRESETS, PresetName
from edge.runtime import Runtime

CUTS = (32, 128, 161, 256, 300, 384)


def parted(built: Built, length: int, at: int, seed: int) -> list[int]:
    """Begins as `prompt` does, up to `at`."""
    front = prompt(built, length)
    return [*front[:at], (front[at] + 1 - 4) % (built.spec.vocab_size - 4) + 4, *prompt(built, length - at - 1, seed)]


def filled(runtime: Runtime, built: Built) -> None:
    """Cuts of one prompt."""
    runtime.submit(prompt(built, 420), ASKED, 3, cuts=CUTS)
    while runtime.has_work:
        runtime.step()
    runtime.check()


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("model", MODELS)
def test_a_hit_equals_a_miss_to_the_bit(build: BuildOf, model: str, preset: PresetName) -> None:
    built = build(MODELS[model], "int4")
    for cut in CUTS:
        tokens = parted(built, 430, cut + 7, cut)
        with open_runtime(built, preset) as runtime:
            filled(runtime, built)
            before = runtime.stats
            came = answers(runtime, [tokens])
            after = runtime.stats
            assert after.prefix_hit_tokens - before.prefix_hit_tokens == cut // 32 * 32, "or it was no hit"
            assert after.prefill_tokens - before.prefill_tokens == 430 - cut // 32 * 32 and after.bytes_copied == 0
        assert came == [alone(built, preset, tokens)], cut


@pytest.mark.parametrize("preset", ["exact", "balanced"])
@pytest.mark.parametrize("model", MODELS)
def test_hits_at_once_and_in_a_small_pool_give_the_same_bits(build: BuildOf, model: str, preset: PresetName) -> None:
    built = build(MODELS[model], "int4")
    prompts = [parted(built, 400 - 9 * i, 262 + i, i) for i in range(4)]
    expected = [alone(built, preset, tokens, 40) for tokens in prompts]
    for share in (1.0, 0.5):
        with open_runtime(built, preset, pool_share=share) as runtime:
            filled(runtime, built)
            for _ in range(2):
                assert answers(runtime, prompts, 40) == expected, share
            assert runtime.stats.prefix_hits > 0 and runtime.stats.bytes_copied == 0


@pytest.mark.parametrize("budget", ["all", "128"])
def test_what_was_computed_from_fewer_pages_is_not_shared(build: BuildOf, budget: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_budget, "MOST_OMITTED", 1.0)  # random weights look everywhere
    built = build(MODELS["llama"], "int4")
    tokens = prompt(built, 600)
    with open_runtime(built, "balanced", context=800, read_budget=budget) as runtime:
        request = runtime.submit(tokens, ASKED, 80, cuts=[300])
        while runtime.has_work:
            runtime.step()
        again = [*tokens, *request.token_ids, 9]
        answers(runtime, [again], 2)
        # The answer is computed but for its last token: 679 of 680.
        assert runtime.stats.prefix_hit_tokens == (288 if budget == "128" else 672)


def test_a_session_goes_back_and_a_second_one_begins_at_cuts(build: BuildOf) -> None:
    built = build(MODELS["llama"], "int4")
    with open_runtime(built, "balanced") as runtime:
        session, talk = runtime.session(), prompt(built, 270)
        answer = [event.token_id for event in session.generate(talk, ASKED, TOKENS, cuts=[270])]
        longer = [*talk, *answer, *prompt(built, 130, 1)]
        list(session.generate(longer, ASKED, TOKENS))
        for begins, changed in ((session, [*longer[:285], *prompt(built, 50, 2)]), (runtime.session(), [*talk, 5, 6, 7])):
            request = begins.submit(changed, ASKED, TOKENS)
            assert request.reused_tokens == 256
            came = [(event.token_id, event.logprob) for event in runtime.events(request)]
            assert came == alone(built, "balanced", changed)
        runtime.check()


@pytest.fixture(scope="module")
def talking_package(edge: Edge, folder: Path, tiny_gguf: Callable[[TinyModel], Path]) -> Path:
    out = folder / "talking.edge"
    edge.succeed("build", tiny_gguf(MODELS["llama"]), "--tier", "fp16", "--verify-tokens", "64", "-o", out)
    return out


def test_a_chat_says_how_much_of_its_prompt_is_new(talking_package: Path, edge: Edge) -> None:
    first = "the " * 330
    entries = (first, "the " * 250, "/undo", "Or?", "/clear", first, "/clear", first + "end")
    words = ("chat", talking_package, "--max-tokens", "6", "--ctx-size", "2048", "--kv-preset", "balanced")
    done = edge.run(*words, feed="".join(f"{entry}\n" for entry in entries).encode())
    assert done.returncode == 0, done.stderr
    counts = [tuple(map(int, match)) for match in re.findall(r"prompt (\d+) tokens, (\d+) new", done.stderr)]
    assert len(counts) == 5
    (asked, new), (more, of_these), (undone, after_undo), (again, of_again), _ = counts
    assert asked == new == again > 256, "the first one had nothing to begin with"
    answered = asked + 5  # the last token of an answer is not computed
    assert of_these == more - answered
    assert undone - after_undo == answered // 32 * 32, "at the end of the first answer, not where sealing begins"
    assert 0 < of_again <= 64, "at the end of the question"
