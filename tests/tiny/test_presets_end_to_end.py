"""Presets on a real engine: the same bits alone, beside others, in chunks of any size and behind a preemption; what is counted
is what is allocated; what a package offers and the commands ask for."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edge_process import Edge
from synthetic import GEMMA, LLAMA, TinyModel

pytest.importorskip("edge._core", reason="needs the native core: pip install .")
pytest.importorskip("onnxruntime", reason="needs the build extra")

from built_engine import Built

from edge.config import InferenceConfig
from edge.executors.native import NativeExecutor
from edge.manifest import Limits
from edge.pages import read_budget
from edge.pages.fit import PoolSize, cut_pool, fit_pool
from edge.pages.geometry import page_groups
from edge.presets import PRESETS, PresetName
from edge.runtime import Runtime
from edge.sampling import SamplingParams, logprob
from edge.stats import RuntimeStats
from edge.teacher import open_teacher

BuildOf = Callable[[TinyModel, str], Built]
MODELS = {  # heads that all presets allow; windows that reach behind a seal border
    "llama": replace(LLAMA, head_dim=32, context=2048, type="Q4_1"),
    "gemma": replace(GEMMA, head_dim=64, heads=2, window=200, type="Q8_0"),
}
CONTEXT, TOKENS = 448, 12
ASKED = SamplingParams(logprobs=True)
Answer = list[tuple[int, float | None]]  # token, logprob


def prompt(built: Built, length: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(4, built.spec.vocab_size), k=length)


def open_runtime(
    built: Built,
    preset: PresetName,
    *,
    chunk: int = 128,
    step_tokens: int = 256,
    sequences: int = 3,
    pool_share: float = 1.0,
    context: int = CONTEXT,
    read_budget: str = "all",
    deterministic: bool = False,
) -> Runtime:
    groups = page_groups(built.spec, PRESETS[preset])
    shipped = replace(InferenceConfig.load(), chunk_tokens=chunk, max_step_tokens=step_tokens)
    config = replace(shipped, read_budget=read_budget, deterministic=deterministic)
    size: PoolSize = fit_pool(groups, context, sequences, 1 << 16, chunk)
    if pool_share < 1.0:
        size = cut_pool(groups, int(size.pool_bytes * pool_share), 1 << 16, chunk)
    limits = Limits(context, step_tokens, sequences, sequences)
    executor = NativeExecutor.open(built.folder, built.spec, limits, pool_bytes=size.pool_bytes, threads=2)
    return Runtime(built.spec, executor, size, limits, config, preset)


def answers(runtime: Runtime, prompts: list[list[int]], count: int = TOKENS) -> list[Answer]:
    """All at once; the pool is checked behind every step."""
    requests = [runtime.submit(tokens, ASKED, count) for tokens in prompts]
    came: dict[int, Answer] = {request.id: [] for request in requests}
    while runtime.has_work:
        for event in runtime.step():
            assert event.error is None
            if event.token_id is not None:
                came[event.request_id].append((event.token_id, event.logprob))
        runtime.check()
    return [came[request.id] for request in requests]


def alone(built: Built, preset: PresetName, tokens: list[int], count: int = TOKENS) -> Answer:
    with open_runtime(built, preset, sequences=1) as runtime:
        return answers(runtime, [tokens], count)[0]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("model", MODELS)
def test_chunks_of_any_size_give_the_same_bits(build: BuildOf, model: str, preset: PresetName) -> None:
    built = build(MODELS[model], "int4")
    for length in (300, 384):
        expected = alone(built, preset, prompt(built, length))
        for chunk, step_tokens in ((7, 256), (100, 256), (128, 50)):
            with open_runtime(built, preset, chunk=chunk, step_tokens=step_tokens) as runtime:
                assert answers(runtime, [prompt(built, length)]) == [expected], (chunk, step_tokens)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("model", MODELS)
def test_a_request_gets_the_same_bits_beside_others_and_behind_a_preemption(
    build: BuildOf, model: str, preset: PresetName
) -> None:
    built = build(MODELS[model], "int4")
    prompts = [prompt(built, length, seed) for seed, length in enumerate((130, 250, 100, 200))]
    expected = [alone(built, preset, tokens, 170) for tokens in prompts]
    with open_runtime(built, preset) as runtime:
        assert answers(runtime, prompts, 170) == expected
        assert runtime.stats.preemptions == 0
    with open_runtime(built, preset, pool_share=0.45) as runtime:
        assert answers(runtime, prompts, 170) == expected
        assert runtime.stats.preemptions > 0 or model == "gemma", "the pool was meant to be too small"


@pytest.mark.parametrize(("model", "pool_share"), [("llama", 0.5), ("gemma", 0.55)])
def test_in_deterministic_mode_what_is_computed_again_reads_what_it_read_at_first(
    build: BuildOf, model: str, pool_share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_budget, "MOST_OMITTED", 1.0)  # random weights look everywhere
    monkeypatch.setattr(read_budget, "PROBE_EVERY", 5)
    built = build(replace(MODELS[model], context=2048), "int4")
    words: dict[str, Any] = {"context": 800, "read_budget": "128", "deterministic": True}
    prompts = [prompt(built, length, seed) for seed, length in enumerate((490, 530, 515))]
    expected = []
    for tokens in prompts:
        with open_runtime(built, "balanced", sequences=1, **words) as runtime:
            expected += answers(runtime, [tokens], 120)
            assert runtime.stats.pages_skipped > 0
    with open_runtime(built, "balanced", pool_share=pool_share, **words) as runtime:
        assert answers(runtime, prompts, 120) == expected
        assert runtime.stats.preemptions > 0
        assert runtime.stats.decode_tokens == len(prompts) * 119, "what is computed again is no token of an answer"


def test_in_deterministic_mode_a_chat_that_gave_its_pages_up_goes_on_as_if_it_had_them(
    build: BuildOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_budget, "MOST_OMITTED", 1.0)
    built = build(replace(MODELS["llama"], context=2048), "int4")
    talk, came = prompt(built, 530), []
    for disturbs in (False, True):
        with open_runtime(built, "balanced", context=900, read_budget="128", deterministic=True, sequences=1) as runtime:
            session = runtime.session()
            first = [event.token_id for event in session.generate(talk, ASKED, 100)]
            longer = [*talk, *first, *prompt(built, 40, 1)]
            if disturbs:
                answers(runtime, [[*talk, *first, *prompt(built, 200, 2)]], 2)  # it computes the same, from all pages
                assert session.computed_tokens == 0, "the pool was meant to be too small for both"
            came.append([(event.token_id, event.logprob) for event in session.generate(longer, ASKED, 40)])
    assert came[0] == came[1]


@pytest.mark.parametrize("model", MODELS)
def test_sealing_changes_an_answer_the_more_the_fewer_its_bits(build: BuildOf, model: str) -> None:
    built = build(MODELS[model], "int4")
    tokens = prompt(built, 440)
    first = {preset: alone(built, preset, tokens, 1)[0][1] for preset in PRESETS}
    away = {preset: abs((value or 0.0) - (first["exact"] or 0.0)) for preset, value in first.items()}
    assert 0.0 < away["safe"] < 0.2 and 0.0 < away["balanced"] < 0.5 and 0.0 < away["tight"] < 1.5
    short = prompt(built, 250)
    assert len({alone(built, preset, short, 1)[0] for preset in PRESETS}) == 1, "nothing is sealed yet"


@pytest.mark.parametrize("preset", PRESETS)
def test_a_turn_goes_on_from_the_pages_of_the_last_one(build: BuildOf, preset: PresetName) -> None:
    built = build(MODELS["llama"], "int4")
    talk = prompt(built, 290)
    with open_runtime(built, preset) as runtime:
        session = runtime.session()
        for turn in range(3):
            events = list(session.generate(talk, ASKED, TOKENS))
            assert [(event.token_id, event.logprob) for event in events] == alone(built, preset, talk)
            talk = [*talk, *(event.token_id for event in events if event.token_id is not None), *prompt(built, 30, turn + 1)]
            runtime.check()
        changed = [*talk[:200], *prompt(built, 100, 9)]  # behind the border: from its first page on, or from that of 200
        request = session.submit(changed, ASKED, TOKENS)
        assert request.reused_tokens == (192 if preset == "exact" else 32)
        came = [(event.token_id, event.logprob) for event in runtime.events(request)]
        assert came == alone(built, preset, changed)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_account_is_what_is_allocated(build: BuildOf, preset: PresetName) -> None:
    built = build(MODELS["gemma"], "int4")
    with open_runtime(built, preset, sequences=1) as runtime:
        session = runtime.session()
        list(session.generate(prompt(built, 430), ASKED, 2))
        stats, pool = runtime.stats, runtime.stats.pool
        executor = runtime.executor
        assert isinstance(executor, NativeExecutor) and executor.pool.nbytes == pool.pool_bytes
        assert pool.used_bytes + pool.free_bytes + pool.slack_bytes == pool.pool_bytes
        assert sum(pool.bytes_by_format.values()) == pool.used_bytes and pool.held_bytes <= pool.high_water_bytes
        formats = {"fp16", PRESETS[preset].key_format, PRESETS[preset].value_format}
        assert set(pool.bytes_by_format) == formats
        assert (stats.pages_sealed > 0) == (preset != "exact") == (stats.bytes_moved > 0) and stats.bytes_copied == 0


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("model", MODELS)
def test_a_teacher_reads_what_a_request_reads(build: BuildOf, model: str, preset: PresetName) -> None:
    built = build(MODELS[model], "int4")
    tokens = prompt(built, 420)
    answer = alone(built, preset, tokens)
    with open_teacher(built.folder, built.spec, CONTEXT, preset) as teacher:
        for singly in (0, 200):
            rows = np.concatenate([rows.copy() for rows in teacher.rows([*tokens, *(token for token, _ in answer)], singly)])
            assert rows.shape[0] == len(tokens) + TOKENS
            for (token, expected), row in zip(answer, rows[len(tokens) - 1 :], strict=False):
                assert (int(row.argmax()), logprob(row, token)) == (token, expected)


@pytest.mark.parametrize("model", MODELS)
def test_answers_that_read_fewer_pages_are_the_same_beside_others(
    build: BuildOf, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_budget, "MOST_OMITTED", 1.0)  # random weights look everywhere
    built = build(MODELS[model], "int4")
    prompts = [prompt(built, length, seed) for seed, length in enumerate((600, 130, 650))]

    def read(budget: str, asked: list[list[int]]) -> tuple[list[Answer], RuntimeStats]:
        with open_runtime(built, "balanced", context=800, read_budget=budget) as runtime:
            return answers(runtime, asked, 70), runtime.stats

    alone = [read("128", [tokens])[0][0] for tokens in prompts]
    together, stats = read("128", prompts)
    dense, unread = read("all", prompts)
    assert together == alone and together != dense and together[1] == dense[1]
    assert 0 < stats.pages_read < stats.pages_skipped and stats.probes >= 4 and 0 < (stats.omitted or 0) < 1
    assert (unread.pages_read, unread.pages_skipped, unread.probes, unread.omitted) == (0, 0, 0, None)


@pytest.fixture(scope="module")
def sealing_package(edge: Edge, folder: Path, tiny_gguf: Callable[[TinyModel], Path]) -> Path:
    out = folder / "sealing.edge"
    edge.succeed("build", tiny_gguf(MODELS["llama"]), "--tier", "fp16", "--verify-tokens", "64", "-o", out)
    return out


def test_a_package_offers_what_its_heads_allow(sealing_package: Path, chat_package: Path, edge: Edge) -> None:
    assert "exact, safe, balanced, tight;" in edge.succeed("inspect", sealing_package)
    assert "exact, safe, balanced;" in edge.succeed("inspect", chat_package)  # heads of 16
    refused = edge.refuse("run", chat_package, "Hi", "--kv-preset", "tight")
    assert refused.endswith("the preset tight is asked for, its engine has: exact, safe, balanced. Ask for one of these")


def test_run_seals_what_it_is_asked_to_inside_its_budget(sealing_package: Path, edge: Edge) -> None:
    words = ("run", sealing_package, "--raw", "the " * 400, "--max-tokens", "4")
    assert edge.json(*words)["kv_preset"] == "safe", "the default"
    exact = edge.json(*words, "--kv-preset", "exact")
    assert (exact["kv_preset"], exact["kv_pages_sealed"], exact["kv_budget_bytes"]) == ("exact", 0, None)
    sealed = edge.json(*words, "--kv-preset", "medium", "--kv-budget", "500kB")
    assert sealed["kv_preset"] == "safe" and sealed["kv_pages_sealed"] > 0 and sealed["kv_bytes_copied"] == 0
    assert sealed["kv_high_water_bytes"] <= sealed["kv_pool_bytes"] <= sealed["kv_budget_bytes"] == 500_000
    assert set(sealed["kv_high_water_by_format"]) == {"fp16", "int8", "int4"}
    refused = edge.refuse(*words, "--kv-budget", "200kB")
    assert "--kv-budget 200.0 kB holds " in refused and "What would hold it: --kv-budget 1MB" in refused
    assert edge.json(*words, EDGE_KV_PRESET="balanced", EDGE_KV_BUDGET="500kB")["kv_preset"] == "balanced"


def test_run_reads_fewer_pages_where_it_is_asked_to(sealing_package: Path, edge: Edge) -> None:
    words = ("run", sealing_package, "--raw", "the " * 700, "--max-tokens", "6")
    read = edge.json(*words, "--kv-preset", "balanced", "--read-budget", "128")
    assert read["kv_probes"] >= 1 and read["kv_omitted"] is not None
    assert edge.json(*words, "--kv-preset", "balanced", EDGE_READ_BUDGET="auto")["kv_probes"] == 0  # below 4,096 tokens
    refused = edge.refuse(*words, "--kv-preset", "exact", "--read-budget", "128")
    assert "--read-budget 128: pages of the preset exact do not tell" in refused and "--kv-preset safe, balanced" in refused
    assert "at least 128 tokens are to be read" in edge.refuse(*words, "--read-budget", "100", code=2)
    assert "'some' is not all, auto or a number" in edge.refuse(*words, "--read-budget", "some", code=2)


def test_a_policy_is_named_beside_the_preset_and_refused_at_exact(sealing_package: Path, edge: Edge) -> None:
    words = ("run", sealing_package, "--raw", "the " * 400, "--max-tokens", "4", "--kv-policy", "anchors")
    assert "| KV balanced, policy anchors, " in edge.run(*words, "--kv-preset", "balanced").stderr
    assert "--kv-policy anchors: the preset exact seals no page" in edge.refuse(*words, "--kv-preset", "exact")


def test_plan_shows_what_each_preset_holds_in_a_budget(sealing_package: Path, edge: Edge) -> None:
    row = edge.json("plan", sealing_package, "--kv-budget", "800kB", "--kv-preset", "safe")
    assert row["preset"] == "safe" and row["pool"] <= row["kv_budget"] == 800_000
    largest = {preset["preset"]: preset["largest_context"] for preset in row["presets"]}
    assert row["context"] == row["largest_context"] == largest["safe"] > largest["exact"]
    assert edge.json("run", sealing_package, "--raw", "the", "-n", "9999", "--kv-budget", "800kB")["kv_pool_bytes"] <= 800_000


def test_run_says_how_much_of_the_answer_a_budget_has_room_for(sealing_package: Path, edge: Edge) -> None:
    words = ("run", sealing_package, "--raw", "the", "-n", "400", "--kv-budget")
    done = edge.run(*words, "300kB")
    assert done.returncode == 0
    said = re.search(r"--kv-budget 300.0 kB has room for (\d+) tokens of the answer, --max-tokens is 400", done.stderr)
    assert said and f"+ {said[1]} tokens" in done.stderr
    enough = re.search(r"Room for all: --kv-budget (\d+MB)", done.stderr)
    assert enough and "has room for" not in edge.run(*words, enough[1]).stderr


def test_a_file_is_answered_inside_a_budget(sealing_package: Path, edge: Edge, tmp_path: Path) -> None:
    manual = tmp_path / "manual.md"
    manual.write_text("the " * 330 + "\r\n", encoding="utf-8-sig")
    words = ("chat", sealing_package, "--file", manual, "--max-tokens", "4")
    question = b"What?\n"
    done = edge.run(*words, "--kv-preset", "balanced", "--kv-budget", "500kB", feed=question)
    assert done.returncode == 0 and "prompt 3" in done.stderr, done.stderr
    exact = edge.run(*words, feed=question)
    assert exact.returncode == 0, exact.stderr
    assert edge.refuse(*words, "--kv-budget", "200kB", feed=question).startswith(f"edge: --file {manual}: 1.3 kB are 3")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"caf\xe9", "byte 3 (0xE9) is not UTF-8. Convert it to UTF-8"),
        (b"\n", "is empty. Give at least one character"),
        (b"x" * 3_000_000, "the text has 1,048,576 bytes, at least "),
        (None, "cannot be read: No such file or directory. Check the path"),
    ],
)
def test_a_file_that_is_no_text_is_refused_in_one_line(
    sealing_package: Path, edge: Edge, tmp_path: Path, content: bytes | None, said: str
) -> None:
    path = tmp_path / "a.md"
    if content is not None:
        path.write_bytes(content)
    line = edge.refuse("chat", sealing_package, "--file", path, feed=b"What?\n")
    assert line.startswith(f"edge: --file {path}") and said in line
