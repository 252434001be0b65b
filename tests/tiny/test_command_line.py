"""The subcommands about models and packages, as a user types them: build, inspect, verify, plan, bench, export."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from edge_process import Edge

pytestmark = [pytest.mark.native, pytest.mark.build]


def test_a_build_gets_its_name_from_the_model_and_replaces_only_when_forced(
    edge: Edge, tmp_path: Path, tiny_gguf: Callable[[str], Path]
) -> None:
    pytest.importorskip("onnxruntime", reason="needs the build extra: onnxruntime")
    gguf = tiny_gguf("llama_published")
    row = edge.json("build", gguf, "--tier", "int8", "--verify-tokens", "64", cwd=tmp_path)
    assert Path(row["path"]).name == f"{gguf.stem}.edge"
    assert (row["tier"], row["target"]) == ("int8", "cpu")
    assert min(row["planned_bytes"], row["peak_rss_bytes"]) > 50_000_000
    assert [path.name for path in tmp_path.iterdir()] == [f"{gguf.stem}.edge"]
    assert "--force" in edge.refuse("build", gguf, "--tier", "int8", "--verify-tokens", "64", cwd=tmp_path)
    text = edge.succeed("build", gguf, "--tier", "int8", "--verify-tokens", "64", "--force", cwd=tmp_path)
    assert re.search(r"\n  memory of the build: planned [0-9.]+ MB, used [0-9.]+ MB\n$", text)
    assert [path.name for path in tmp_path.iterdir()] == [f"{gguf.stem}.edge"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere.gguf"], "nowhere.gguf: no such file, and no model of the catalog. In the catalog: gemma-3-270m, smollm2"),
        (["smollm2-135m"], "Did you mean smollm2-135m-instruct"),
        (["{model}", "--tier", "int3"], "tiers: no 'int3'. Did you mean 'int8'?"),
        (["smollm2-135m-instruct", "--tier", "int3"], "tiers: no 'int3'. Did you mean 'int8'?"),
        (["smollm2-135m-instruct", "--target", "cpux"], "devices: no 'cpux'. Did you mean 'cpu'? There are: a10, "),
        (["{model}", "--target", "cpux"], "devices: no 'cpux'. Did you mean 'cpu'? There are: a10, "),
        (["{model}", "-o", "nowhere/x.edge"], "nowhere"),
        (["{model}", "-o", "x"], "a package's name ends in .edge"),
    ],
)
def test_a_build_that_cannot_be_is_refused_and_leaves_nothing(
    edge: Edge, words: list[str], says: str, tmp_path: Path, tiny_gguf: Callable[[str], Path]
) -> None:
    model = str(tiny_gguf("llama_published"))
    words = [word.format(model=model) for word in words]
    assert says in edge.refuse("build", *words, cwd=tmp_path, EDGE_CACHE="/nowhere", EDGE_OFFLINE="1")
    assert list(tmp_path.iterdir()) == []


def test_inspect_shows_the_package_and_its_manifest_as_json(edge: Edge, chat_package: Path) -> None:
    text = edge.succeed("inspect", chat_package)
    for word in ("bits per weight", "engine verdict", "engine/weights.bin", "int8"):
        assert word in text
    assert "attn.q_proj.weight" not in text
    assert "layers.0.attn.q_proj.weight" in edge.succeed("inspect", chat_package, "--tensors")
    row = edge.json("inspect", chat_package)
    assert row["tier"] == "int8"
    assert row["path"] == str(chat_package)


def test_verify_repeats_the_proof_with_and_without_the_reference(
    edge: Edge, chat_package: Path, tiny_gguf: Callable[[str], Path]
) -> None:
    assert edge.json("verify", chat_package)["reference"] is None
    full = edge.json("verify", chat_package, "--reference", tiny_gguf("llama_published"))
    assert full["passed"]
    assert full["reference"]["engine"]["passed"]
    assert "Give the model that it was built from" in edge.refuse("verify", chat_package, "--reference", tiny_gguf("llama"))


def test_a_flipped_byte_is_found_by_verify_and_named(edge: Edge, chat_package: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(chat_package, tmp_path / "copy.edge")
    weights = copy / "engine/weights.bin"
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 1
    weights.write_bytes(data)
    line = edge.refuse("verify", copy)
    assert "weights.bin: SHA-256 is" in line
    assert "edge build" in line


def test_a_plan_of_a_model_agrees_with_the_plan_of_its_package(
    edge: Edge, chat_package: Path, tiny_gguf: Callable[[str], Path]
) -> None:
    words = ("--context", "256", "--threads", "2")
    built = edge.json("plan", chat_package, *words)
    model = edge.json("plan", tiny_gguf("llama_published"), "--tier", "int8", *words)
    assert built["fits"]
    for part in ("weights", "pool", "workspace", "host", "largest_context"):
        assert built[part] == model[part], part
    assert built["largest_context"] == 512  # the model's own
    assert "largest context that fits: 512" in edge.succeed("plan", chat_package)


def test_a_plan_of_a_package_is_of_what_it_was_built_for(edge: Edge, chat_package: Path) -> None:
    assert edge.json("plan", chat_package, "--tier", "int8", "--target", "cpu")["tier"] == "int8"
    assert edge.json("plan", chat_package)["target"] == "cpu"
    ambient = edge.run("plan", chat_package, EDGE_TIER="fp16", EDGE_TARGET="elsewhere")  # what is meant for builds
    assert (ambient.returncode, ambient.stderr) == (0, "")
    assert "--tier fp16: " in edge.refuse("plan", chat_package, "--tier", "fp16", code=2)
    assert "Leave --target out" in edge.refuse("plan", chat_package, "--target", "a10", code=2)


def test_bench_measures_as_much_as_the_engine_holds(edge: Edge, chat_package: Path) -> None:
    row = edge.json("bench", chat_package, "--prompt", "500", "--decode", "12")
    assert (row["prompt_tokens"], row["decode_tokens"]) == (500, 12)
    line = edge.refuse("bench", chat_package, "--prompt", "500", "--decode", "13")
    assert "--prompt 500 and --decode 13 are 513 tokens, the engine takes 512. Shorten one" in line


def test_inspect_needs_no_native_core(edge_command: list[str], chat_package: Path) -> None:
    *python, code = edge_command
    hidden = f"import sys; sys.modules['edge._core'] = None; {code}"
    done = subprocess.run([*python, hidden, "inspect", str(chat_package)], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"tier verdict" in done.stdout


def test_bench_prints_one_json_line_with_every_figure(edge: Edge, chat_package: Path) -> None:
    text = edge.succeed("bench", chat_package, "--prompt", "40", "--decode", "5", "--threads", "1", "--json")
    row = json.loads(text)
    assert text.count("\n") == 1
    keys = {"engine", "version", "commit", "load_s", "ttft_s", "prefill_tokens_per_s", "decode_tokens_per_s", "peak_rss_bytes",
            "isa", "threads", "weight_bytes_per_token", "weight_gb_per_s", "share_of_bandwidth", "logits_sha256",
            "measured_gb_per_s", "kv_bytes_per_token", "bandwidth", "dot_gops", "matrix_dot_product", "decode_limit",
            "prefill_limit", "share_of_decode_limit", "share_of_prefill_limit", "loop_overhead_ms_per_token"}  # fmt: skip
    assert keys <= row.keys()
    assert (row["prompt_tokens"], row["decode_tokens"], row["threads"]) == (40, 5, 1)
    again = edge.json("bench", chat_package, "--prompt", "60", "--decode", "1", "--threads", "2")
    assert again["logits_sha256"] == row["logits_sha256"]  # one thread or two, the engine computes the same
    assert row["bytes_per_token"] == row["weight_bytes_per_token"] + row["kv_bytes_per_token"] == row["decode_limit"]["bytes"]
    text = edge.succeed("bench", chat_package, "--prompt", "16", "--decode", "2", "--rounds", "2")
    for word in ("limit", "median", "best with", "int8 with scales"):
        assert word in text


def test_the_first_word_of_bench_is_a_subcommand_or_a_package(edge: Edge, chat_package: Path, tmp_path: Path) -> None:
    words = ("--prompt", "16", "--decode", "2", "--json")
    (tmp_path / "compare").symlink_to(chat_package)
    assert json.loads(edge.succeed("bench", "./compare", *words, cwd=tmp_path))["prompt_tokens"] == 16
    assert json.loads(edge.succeed("bench", *words, chat_package))["prompt_tokens"] == 16
    assert "edge bench compare" in edge.succeed("bench", "compare", "--help").splitlines()[0]
    assert re.search(r"Commands:\n  compare .*\n  kernels .*\n  kv .*\n  shape ", edge.succeed("bench", "--help"))
    assert "Missing argument 'PACKAGE'. See: edge bench --help" in edge.refuse("bench", code=2)


def test_export_writes_the_model_and_says_what_was_rounded(
    edge: Edge, tmp_path: Path, tiny_gguf: Callable[[str], Path]
) -> None:
    gguf = tiny_gguf("llama_published")
    row = edge.json("export", gguf, "-o", tmp_path / "m.onnx", "--tier", "int4")
    assert {path.name for path in tmp_path.iterdir()} == {"m.onnx", "m.onnx.data"}
    assert row["tier"] == "int4"
    assert row["data_bytes"] == (tmp_path / "m.onnx.data").stat().st_size
    assert "--requantise belongs to a tier" in edge.refuse("export", gguf, "--requantise", code=2, cwd=tmp_path)
