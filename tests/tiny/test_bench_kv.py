"""Presets measured on a tiny package: by the build, by `edge bench kv`, and what a gate that failed does to a run."""

from __future__ import annotations

import json
import random
import shutil
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

from edge.bench.kv_estimate import time_preset
from edge.contract import PAGE_FORMATS
from edge.executors.native import NativeExecutor
from edge.kv_eval.fed_sequence import FLOOR, open_sequences, reading_name
from edge.kv_eval.forms import forms_of
from edge.kv_eval.haystacks import haystack_tokens
from edge.kv_eval.likeness import measure_likeness
from edge.kv_eval.texts import Document
from edge.package import Package
from edge.pages import read_budget
from edge.policies import RAISED_SHARES
from edge.presets import PRESETS
from edge.progress import SilentProgress
from edge.teacher import open_teacher

MODEL = replace(LLAMA, head_dim=32, context=2048, type="Q4_1")
WINDOWS = replace(GEMMA, head_dim=32, context=2048, window=64)


@pytest.fixture(scope="module")
def measured_package(edge: Edge, folder: Path, tiny_gguf: Callable[[TinyModel], Path]) -> Path:
    out = folder / "measured.edge"
    edge.succeed("build", tiny_gguf(MODEL), "--tier", "int4", "--verify-tokens", "1024", "-o", out)
    return out


@pytest.fixture(scope="module")
def bench(measured_package: Path, edge: Edge, folder: Path) -> dict[str, Any]:
    text = folder / "long.txt"
    parts = [f"# Part {n}\n\n" + f"Line {n} says the same as the one before.\n" * 9 for n in range(33)]
    text.write_text("\n".join(parts), encoding="utf-8")
    sizes = ("--context", "700", "--documents", "2", "--tokens", "128", "--needles", "3")
    row: dict[str, Any] = edge.json("bench", "kv", measured_package, "--text", text, *sizes)
    return row


def ids_of(package: Package, count: int) -> list[int]:
    return random.Random(0).choices(range(4, package.spec.vocab_size), k=count)


def with_failed(package: Path, out: Path, preset: str) -> Path:
    """A copy of the package in which the gate of `preset` failed."""
    shutil.copytree(package, out)
    plain = json.loads((out / "manifest.json").read_text("utf-8"))
    for name, verdict in plain["preset_verdicts"].items():
        verdict |= {"kl_mean": 0.5 if name == preset else 0.0, "top1": 1.0, "passed": name != preset}
    (out / "manifest.json").write_text(json.dumps(plain), encoding="utf-8")
    return out


def test_a_build_measures_every_preset_and_inspect_shows_it(measured_package: Path, edge: Edge) -> None:
    verdicts = Package.open(measured_package, force=True).manifest.preset_verdicts
    assert list(verdicts) == ["safe", "balanced", "tight"]
    assert all(v.tokens == 256 and v.window_tokens == 1024 and v.kl_mean != 0 for v in verdicts.values())
    shown = edge.succeed("inspect", measured_package)
    assert all(f"preset {name}" in shown for name in verdicts)


def test_a_preset_whose_gate_failed_runs_only_by_force(measured_package: Path, edge: Edge, tmp_path: Path) -> None:
    package = with_failed(measured_package, tmp_path / "failed.edge", "balanced")
    words = ("run", package, "--raw", "the the", "--max-tokens", "2", "--kv-preset", "balanced")
    refused = edge.refuse(*words)
    assert "the preset balanced failed its gate when the package was built (KL 0.5 of at most " in refused
    assert "--kv-preset safe" in refused and "--ignore-verdict" in refused
    for word in ("--ignore-verdict", "--force"):
        assert edge.json(*words, word)["kv_preset"] == "balanced"
    assert edge.json(*words[:-1], "safe")["kv_preset"] == "safe"


def test_bench_kv_prints_a_row_for_each_preset_and_policy(bench: dict[str, Any]) -> None:
    policies = [policy for policy in RAISED_SHARES if policy != "uniform"]
    names = ["exact", *(f"{p} {q}".strip() for p in list(PRESETS)[1:] for q in ("", *policies))]
    assert [row["form"] for row in bench["forms"]] == names
    assert bench["documents"] == ["long.txt", "long.txt"] and bench["tokens_compared"] == 128 and not bench["is_claim"]
    exact, *others = bench["forms"]
    assert (exact["kl_mean"], exact["top1"], exact["gate"], exact["smaller"]) == (0.0, 1.0, None, pytest.approx(1.0, abs=0.01))
    for row in others:
        assert row["kl_mean"] > 0 and 0 < row["top1"] <= 1 and row["gate"] in ("passed", "unsure", "failed")
        assert row["asked"] == {"needle": 3, "combined": 3, "moved": 3, "look-alike": 3}
    sizes = [row["kv_bytes"] for row in bench["forms"] if row["policy"] == "uniform"]
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == 4


def test_the_floor_is_more_alike_than_any_preset(bench: dict[str, Any]) -> None:
    assert 0 < bench["floor"]["kl_mean"] < min(row["kl_mean"] for row in bench["forms"][1:])


def test_bytes_are_those_of_the_formats_of_the_preset(bench: dict[str, Any]) -> None:
    for row in bench["forms"]:
        held, preset = row["kv_bytes_by_format"], PRESETS[row["preset"]]
        assert {"fp16", preset.key_format, preset.value_format} <= set(held) <= set(PAGE_FORMATS)
        if row["policy"] == "uniform":
            assert set(held) == {"fp16", preset.key_format, preset.value_format}
        assert row["kv_bytes"] == sum(held.values()) + row["kv_table_bytes"] <= row["kv_pool_bytes"] + 10_000


def test_a_plot_is_drawn(measured_package: Path, edge: Edge, folder: Path, bench: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the bench extra")
    sizes = ("--context", "700", "--documents", "1", "--tokens", "32", "--needles", "2", "--presets", "safe")
    shown = edge.succeed("bench", "kv", measured_package, "--text", folder / "long.txt", *sizes, "--png", tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "safe: " in shown and "default: " in shown
    assert max(map(len, shown.splitlines())) <= 80 and "Too little for a claim" in shown


def test_a_picture_that_cannot_be_written_takes_no_figures_along(
    measured_package: Path, edge: Edge, folder: Path, bench: dict[str, Any], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib", reason="needs the bench extra")
    (tmp_path / "full.png").symlink_to("/dev/full")
    sizes = ("--context", "700", "--documents", "1", "--tokens", "8", "--needles", "0", "--presets", "exact", "--json")
    done = edge.run("bench", "kv", measured_package, "--text", folder / "long.txt", *sizes, "--png", tmp_path / "full.png")
    assert done.returncode == 1 and json.loads(done.stdout)["tokens_compared"] == 8
    assert done.stderr.splitlines()[-1].endswith(
        "cannot be written: No space left on device. Check its folder and the free space"
    )


def test_presets_run_again_with_a_read_budget(measured_package: Path, edge: Edge, folder: Path, bench: dict[str, Any]) -> None:
    sizes = (
        "--context",
        "700",
        "--documents",
        "1",
        "--tokens",
        "40",
        "--needles",
        "1",
        "--presets",
        "balanced",
        "--policies",
        "uniform",
    )
    words = ("bench", "kv", measured_package, "--text", folder / "long.txt", *sizes)
    row = edge.json(*words, "--read-budget", "128")
    assert bench["read_budget"] == "all" and bench["reads"] == [] and row["read_budget"] == "128"
    (reads,), (_, dense) = row["reads"], row["forms"]
    # Random weights look everywhere, so that a budget widens until all is read: two probes an answer.
    assert (reads["preset"], reads["tokens"], reads["pages_skipped"]) == ("balanced", 0, 0)
    assert reads["probes"] >= 2 and reads["probes"] % 2 == 0 and 0.02 < reads["omitted"] < 1
    assert reads["kl_mean"] == dense["kl_mean"] and reads["right"] == dense["right"] and reads["asked"] == dense["asked"]
    unread = edge.json(*words, "--read-budget", "512")["reads"][0]  # more than a quarter of the text
    assert (unread["probes"], unread["omitted"], unread["kl_mean"]) == (0, None, dense["kl_mean"])


def test_a_budget_that_is_kept_to_changes_what_a_preset_is_like(
    measured_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_budget, "MOST_OMITTED", 1.0)
    package = Package.open(measured_package, force=True)
    document = Document("random", tuple(ids_of(package, 660)))
    with open_sequences(
        measured_package / "engine", package.spec, forms_of(("exact", "safe")), 660, budget=read_budget.ReadTokens(128)
    ) as sequences:
        found = measure_likeness(sequences, [document], 100, 10, SilentProgress())
        reads = sequences[reading_name("safe")].reads
    assert (reads.tokens, reads.probes) == (98, 2) and 0 < (reads.mean_omitted or 0) < 1
    layers = 1  # groups
    sealed = [11 if position < 640 else 15 for position in range(560, 660)]
    assert reads.read == 98 * 3 * layers and reads.read + reads.skipped == sum(sealed) - sealed[0] - sealed[64]
    assert found[reading_name("safe")].comparison.kl_mean > 2 * found["safe"].comparison.kl_mean > 0
    assert len(found[reading_name("safe")].decode_seconds) == 10


def test_policies_of_a_preset_hold_the_same_bytes_more_than_it_alone(bench: dict[str, Any]) -> None:
    for preset in ("safe", "balanced", "tight"):
        held = {row["policy"]: row["kv_bytes"] for row in bench["forms"] if row["preset"] == preset}
        # Pages are chosen over the whole text, of which the end is not sealed.
        assert held["anchors"] == pytest.approx(held["random"], rel=0.02)
        assert min(held["anchors"], held["random"]) > held["uniform"]
    assert bench["choice"]["default"] in RAISED_SHARES
    assert all("random" in each["same_bytes"] for each in bench["choice"]["presets"])


def test_time_is_told_before_and_while_it_runs(measured_package: Path, edge: Edge, folder: Path, bench: dict[str, Any]) -> None:
    sizes = ("--context", "700", "--documents", "1", "--tokens", "40", "--needles", "1", "--presets", "safe")
    done = edge.run("bench", "kv", measured_package, "--text", folder / "long.txt", *sizes, "--policies", "anchors")
    assert "edge: without `random` in --policies nothing stands at equal bytes" in done.stderr
    assert done.returncode == 0 and done.stderr.index("timing the presets") < done.stderr.index(
        "edge: 3 forms, 1 document, about "
    )


def test_a_question_that_frees_a_page_behind_a_window_is_refused_and_a_shorter_one_is_not(
    folder: Path, edge: Edge, tiny_gguf: Callable[[TinyModel], Path]
) -> None:
    out = folder / "windows.edge"
    edge.succeed("build", tiny_gguf(WINDOWS), "--tier", "int4", "--verify-tokens", "64", "-o", out)
    package = Package.open(out, force=True)
    ids = ids_of(package, haystack_tokens(700) + 40)
    stop = haystack_tokens(700)
    with open_sequences(out / "engine", package.spec, forms_of(("exact", "balanced")), 700) as sequences:
        for sequence in (sequences["exact"], sequences["balanced"]):
            sequence.begin()
            sequence.feed_all(ids[:stop])
            sequence.feed(ids[stop : stop + 31], 1)
            assert sequence.can_rewind(stop)
            sequence.rewind(stop)
            sequence.feed(ids[stop : stop + 32], 1)
            assert not sequence.can_rewind(stop)


def test_a_clock_of_pretended_pages_leaves_nothing_behind(measured_package: Path) -> None:
    package = Package.open(measured_package, force=True)
    forms = forms_of(("exact", "tight"), ("anchors",))
    with open_sequences(measured_package / "engine", package.spec, forms, 700) as sequences:
        engine = sequences["exact"].executor
        assert isinstance(engine, NativeExecutor)
        engine.pool[:] = 255  # no numbers
        clock = time_preset(sequences["tight"], 700, engine.pool)
        assert (
            clock.front > 0 and clock.end > 0 and clock.single > 0 and clock.document(700, 100, 10) > clock.document(600, 0, 0)
        )
        assert sequences["tight"].length == 0 and sequences["tight"].bytes_by_format() == {}
        ids = ids_of(package, 400)
        rows = []
        for name in ("tight", "tight", "tight anchors"):
            sequences[name].begin()
            sequences[name].feed_all(ids[:384])
            rows.append(sequences[name].feed(ids[384:], 16).copy())
        assert all(np.array_equal(each, rows[0]) for each in rows)  # without zones nothing is raised


def test_what_is_asked_of_bench_kv_is_refused_in_one_line(measured_package: Path, edge: Edge, tmp_path: Path) -> None:
    words = ("bench", "kv", measured_package)
    assert "--context 9999, its engine takes 2048" in edge.refuse(*words, "--context", "9999")
    assert "needles need 640 tokens" in edge.refuse(*words, "--context", "400")
    assert "no page is sealed before 257 tokens" in edge.refuse(*words, "--context", "200", "--needles", "0")
    assert "cannot be read" in edge.refuse(*words, "--text", tmp_path / "none.txt")
    (tmp_path / "short.txt").write_text("Hi.", encoding="utf-8")
    assert "no text is that long" in edge.refuse(*words, "--text", tmp_path / "short.txt")


@pytest.mark.parametrize("preset", ["exact", "safe", "balanced", "tight"])
def test_sequences_side_by_side_give_the_logits_that_each_gives_alone(measured_package: Path, preset: str) -> None:
    package = Package.open(measured_package, force=True)
    ids, engine = ids_of(package, 560), measured_package / "engine"
    with open_teacher(engine, package.spec, len(ids), preset) as teacher:  # type: ignore[arg-type]
        alone = [rows.copy() for rows in teacher.rows(ids)]
    with open_sequences(engine, package.spec, forms_of(tuple(PRESETS)), len(ids)) as sequences:
        for number, begin in enumerate(range(0, len(ids), 128)):
            chunk = ids[begin : begin + 128]
            for name, sequence in sequences.items():
                rows = sequence.feed(chunk, len(chunk))
                if name == preset:
                    assert np.array_equal(rows, alone[number])
                if name == FLOOR and begin >= 256:
                    assert not np.array_equal(rows, alone[number])


def test_a_question_leaves_no_trace(measured_package: Path) -> None:
    package = Package.open(measured_package, force=True)
    ids = ids_of(package, 530)
    with open_sequences(measured_package / "engine", package.spec, forms_of(("exact", "tight")), 640) as sequences:
        sequence = sequences["tight"]
        sequence.feed_all(ids[:520])
        first = sequence.feed(ids[520:], 10).copy()
        sequence.rewind(520)
        sequence.feed(ids[:90], 1)
        sequence.rewind(520)
        assert np.array_equal(sequence.feed(ids[520:], 10), first)
        sequence.release()
        assert sequence.bytes_by_format() == {}
