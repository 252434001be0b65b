"""`edge plan` for every target, as a user types it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from edge_process import Edge
from synthetic import LLAMA, TinyModel, write_hollow

from edge.cli.main import group
from edge.devices import device_names, load_device

TARGETS = tuple(name for name in device_names() if name != "cpu")
# A billion weights in a file of no size: what such a model needs can be planned without having one.
LARGE = replace(
    LLAMA, hidden=2048, feed_forward=8192, heads=32, kv_heads=8, head_dim=64, layers=16, context=131072, tied=False, type="Q4_1"
)


@pytest.fixture(scope="module")
def large_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("gguf", reason="needs the build extra: gguf")
    return write_hollow(tmp_path_factory.mktemp("large") / "large.gguf", LARGE)


def planned(*words: str | Path) -> str:
    """What `edge plan` prints, from this process: a tenth of a second each."""
    done = CliRunner().invoke(group, ["plan", *map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


@pytest.mark.build
@pytest.mark.parametrize("target", TARGETS)
def test_every_target_has_a_plan_for_people_and_for_programs(large_gguf: Path, target: str) -> None:
    row = json.loads(planned(large_gguf, "--target", target, "--json"))
    profile = load_device(target)
    assert (row["target"], row["engine"], row["tier"], row["preset"]) == (target, profile.engines[0], "int4", "exact")
    assert profile.defaults is not None
    assert row["context"] == profile.defaults.context
    parts = ("weights", "pool", "workspace", "host", "runtime", "system")
    assert row["total"] == sum(row[part] for part in parts)
    assert row["fits"]
    assert set(row["estimates"]) <= {*parts, "host_apart", "build.builder", "speeds"}
    assert {"build.builder", "speeds"} <= set(row["estimates"])
    assert row["build"]["fits"] == (target not in ("orin-nano-4", "jetson-generic"))  # three copies of it in 4 GB: no
    assert [(step["tensorrt"], step["finishes"]) for step in row["jetpacks"]] == (
        [("10.3.0", False), ("10.16.2", True)] if profile.tensorrt else []
    )
    assert [preset["preset"] for preset in row["presets"]] == ["exact", "exact", "safe", "balanced", "tight"]
    assert "bandwidth" in row["speed_formula"]
    for speed in row["speeds"]:
        assert 0 < speed["decode"][0] < speed["decode"][1] < speed["prefill"]
    text = planned(large_gguf, "--target", target)
    assert f"large.gguf, int4, {target} ({profile.title}), {profile.engines[0]} engine, context" in text
    assert "fits; largest context that fits: " in text
    assert "builder: measured with up to 275.0 MB of weights; beyond, that line is drawn on" in text
    assert ("JetPack 7.2, 7.2.1: TensorRT 10.16.2, --finish works" in text) == bool(profile.tensorrt)
    assert ("JetPack 6.1, 6.2, 6.2.1, 6.2.2: TensorRT 10.3.0, --finish waits for the plugin" in text) == bool(profile.tensorrt)
    for words in ("planned: the paged engine", "tokens/s", "estimate, nothing was run", f"yaml/devices/{target}.yaml"):
        assert words in text, words
    assert all(len(line) <= 160 for line in text.splitlines()[1:])


@pytest.mark.build
def test_the_tensorrt_that_finishes_is_the_first_that_reads_a_graph_with_linear_kv() -> None:
    from edge.jetpacks import LINEAR_SINCE
    from engines.tensorrt.lower import READERS

    assert {reader.since for name, reader in READERS.items() if reader.attention == "linear" and "rtx" not in name} == {
        LINEAR_SINCE
    }


@pytest.mark.build
def test_a_smaller_board_allows_less_context_and_says_when_nothing_fits(large_gguf: Path) -> None:
    boards = ("orin-nx-16", "orin-nano-8", "orin-nano-4")
    rows = [json.loads(planned(large_gguf, "--target", name, "--json")) for name in boards]
    contexts = [row["largest_context"] for row in rows]
    assert contexts == sorted(contexts, reverse=True)
    assert contexts[0] > contexts[-1]
    tight = [preset["largest_context"] for preset in rows[-1]["presets"]]
    assert tight == sorted(tight)
    assert tight[0] < tight[-1]
    text = planned(large_gguf, "--target", "orin-nano-4", "--context", "131072")
    assert text.count("DOES NOT FIT") == 2  # the engine, and its build
    assert f"DOES NOT FIT; largest context that fits: {contexts[-1]}" in text


@pytest.mark.build
def test_int4_weights_stay_4_bit_in_a_plan(large_gguf: Path) -> None:
    sizes = {
        tier: json.loads(planned(large_gguf, "--target", "a10", "--tier", tier, "--json"))["weights"]
        for tier in ("int4", "int8", "fp16")
    }
    body = 16 * (2048 * (32 + 2 * 8) * 64 + 32 * 64 * 2048 + 3 * 2048 * 8192)
    tables = 2 * len(LARGE.vocabulary.tokens) * 2048
    assert sizes["int4"] == pytest.approx(body * (0.5 + 4 / 32) + tables, rel=0.002)  # a scale and an offset for 32
    assert sizes["int8"] == pytest.approx(body + tables, rel=0.002)
    assert sizes["fp16"] == pytest.approx(2 * (body + tables), rel=0.002)


@pytest.mark.build
@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("--target", "orin-nano"), 1, "Did you mean 'orin-nano-"),
        (("--target", "a10", "--tier", "int5"), 1, "tiers: no 'int5'. Did you mean 'int"),
        (("--target", "a10", "--preset", "safe"), 1, "--kv-preset safe: engines for a10 can do: exact."),
        (("--kv-budget", "1kB"), 1, "KV budget of 1.0 kB: one page of each layer group needs "),
        (("--target", "a10", "--kv-budget", "1GB"), 1, "--kv-budget: the caches of a tensorrt-rtx engine have a fixed length."),
        (("--target", "a10", "--preset", "best"), 2, "'best' is not one of exact, safe, balanced, tight, high, medium, low."),
        (("--target", "a10", "--context", "513"), 1, "a context of 513, the model has 512. Use --ctx-size 512"),
        (("--target", "a10", "--context", "0"), 2, "0 is not in the range x>=1"),
        (("--target", "a10", "--sequences", "2"), 1, "--sequences 2: a tensorrt-rtx engine of this version carries 1."),
        (("--target", "a10", "--threads", "2"), 2, "--threads is for cpu engines, and this one is tensorrt-rtx."),
        (("--target", "orin-nx-8", "--engine", "tensorrt-rtx"), 1, "--engine tensorrt-rtx: orin-nx-8 runs tensorrt."),
        (("--target", "a10", "--engine", "onnx"), 2, "'onnx' is not one of 'cpu', 'tensorrt', 'tensorrt-rtx'"),
    ],
)
def test_what_a_target_cannot_do_is_one_line(
    edge: Edge, tiny_gguf: Callable[[str | TinyModel], Path], words: tuple[str, ...], code: int, expected: str
) -> None:
    assert expected in edge.refuse("plan", tiny_gguf("llama_published"), *words, code=code)


@pytest.mark.build
def test_the_cpu_target_plans_as_ever(edge: Edge, tiny_gguf: Callable[[str | TinyModel], Path]) -> None:
    row = edge.json("plan", tiny_gguf("llama_published"), EDGE_THREADS="2")
    assert (row["engine"], row["runtime"], row["system"]) == ("cpu", 0, 0)
    assert "speeds" not in row
    text = edge.succeed("plan", tiny_gguf("llama_published"))
    memory, kv = text.split("\n\n")
    assert [line.split()[0] for line in memory.splitlines()[1:]] == [
        "weights", "pool", "workspace", "host", "total", "available", "fits;",
    ]  # fmt: skip
    assert [line.split()[0] for line in kv.splitlines()] == ["KV", "preset", "exact", "safe", "balanced"]


@pytest.mark.build
def test_a_context_that_a_device_would_take_is_cut_to_the_model(
    edge: Edge, tiny_gguf: Callable[[str | TinyModel], Path]
) -> None:
    row = edge.json("plan", tiny_gguf("gemma"), "--target", "orin-agx-64", EDGE_THREADS="3")
    assert row["context"] == row["largest_context"] == LLAMA.context


@pytest.mark.build
@pytest.mark.parametrize("tier", ["int4", "int8", "fp16"])
@pytest.mark.parametrize("name", ["llama_published", "llama_q4_0", "llama_odd_widths", "llama_untied", "gemma_published"])
def test_planned_weights_are_those_that_lowering_stores(
    tiny_gguf: Callable[[str | TinyModel], Path], tmp_path: Path, name: str, tier: str
) -> None:
    from calibration.tiers import load_tier
    from engines.portable.export import write_portable
    from engines.portable.reader import read_portable
    from engines.sources.base import open_source
    from engines.target_sizes import planned_weights
    from engines.tensorrt.weight_forms import weight_form

    source, recipe = open_source(tiny_gguf(name)), load_tier(tier)
    write_portable(source, recipe, tmp_path / "portable.onnx", dtype="float16")
    model = read_portable(tmp_path / "portable.onnx")
    forms = (weight_form(model, stored) for stored in model.stored.values())
    expected = sum(piece.nbytes for form in forms for piece in form.pieces)
    assert planned_weights(source, recipe, requantise=False).stored == expected
