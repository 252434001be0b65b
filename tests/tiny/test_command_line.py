"""The subcommands on a tiny model, as a user types them: build, inspect, verify, plan, run, chat, bench, export."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.native, pytest.mark.build]

EDGE = [sys.executable, "-c", "import sys; from edge.cli.main import main; main(sys.argv[1:])"]


def run(
    *words: str | Path, feed: bytes | None = None, cwd: Path | None = None, **changes: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*EDGE, *map(str, words)],
        input=feed or b"",
        capture_output=True,
        check=False,
        cwd=cwd,
        env={**os.environ, **changes},
        timeout=300,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def succeed(*words: str | Path, feed: bytes | None = None, cwd: Path | None = None, **changes: str) -> str:
    done = run(*words, feed=feed, cwd=cwd, **changes)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refuse(*words: str | Path, code: int = 1, feed: bytes | None = None, cwd: Path | None = None, **changes: str) -> str:
    """The one line with which the command is refused."""
    done = run(*words, feed=feed, cwd=cwd, **changes)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    lines = [line for line in done.stderr.splitlines() if "%" not in line]
    assert lines[-1].startswith("edge: ")
    assert "Traceback" not in done.stderr
    return lines[-1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose name has a space and letters beyond ASCII."""
    path = tmp_path_factory.mktemp("packages") / "Rifé 日本"
    path.mkdir()
    return path


def build(folder: Path, gguf: Path, name: str) -> Path:
    pytest.importorskip("onnxruntime", reason="needs the build extra: onnxruntime")
    out = folder / f"{name}.edge"
    succeed("build", gguf, "--tier", "int8", "--target", "cpu", "--verify-tokens", "64", "-o", out)
    return out


@pytest.fixture(scope="module")
def chat_package(folder: Path, tiny_gguf: Callable[[str], Path]) -> Path:
    return build(folder, tiny_gguf("llama_published"), "chat")


@pytest.fixture(scope="module")
def base_package(folder: Path, tiny_gguf: Callable[[str], Path]) -> Path:
    return build(folder, tiny_gguf("gemma_published"), "base")


def test_a_build_gets_its_name_from_the_model_and_replaces_only_when_forced(
    tmp_path: Path, tiny_gguf: Callable[[str], Path]
) -> None:
    pytest.importorskip("onnxruntime", reason="needs the build extra: onnxruntime")
    gguf = tiny_gguf("llama_published")
    row = json.loads(succeed("build", gguf, "--tier", "int8", "--verify-tokens", "64", "--json", cwd=tmp_path))
    assert Path(row["path"]).name == f"{gguf.stem}.edge"
    assert (row["tier"], row["target"]) == ("int8", "cpu")
    assert [path.name for path in tmp_path.iterdir()] == [f"{gguf.stem}.edge"]
    assert "--force" in refuse("build", gguf, "--tier", "int8", "--verify-tokens", "64", cwd=tmp_path)
    succeed("build", gguf, "--tier", "int8", "--verify-tokens", "64", "--force", cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [f"{gguf.stem}.edge"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere.gguf"], "nowhere.gguf: no such file, and no model of the catalog. In the catalog: gemma-3-270m, smollm2"),
        (["smollm2-135m"], "Did you mean smollm2-135m-instruct"),
        (["{model}", "--tier", "int3"], "tiers: no 'int3'. Did you mean 'int8'?"),
        (["{model}", "--target", "cpux"], "devices: no 'cpux'. Did you mean 'cpu'? There are: cpu"),
        (["{model}", "-o", "nowhere/x.edge"], "nowhere"),
        (["{model}", "-o", "x"], "a package's name ends in .edge"),
    ],
)
def test_a_build_that_cannot_be_is_refused_and_leaves_nothing(
    words: list[str], says: str, tmp_path: Path, tiny_gguf: Callable[[str], Path]
) -> None:
    model = str(tiny_gguf("llama_published"))
    assert says in refuse("build", *(word.format(model=model) for word in words), cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_inspect_shows_the_package_and_its_manifest_as_json(chat_package: Path) -> None:
    text = succeed("inspect", chat_package)
    for word in ("bits per weight", "engine verdict", "engine/weights.bin", "int8"):
        assert word in text
    assert "attn.q_proj.weight" not in text
    assert "layers.0.attn.q_proj.weight" in succeed("inspect", chat_package, "--tensors")
    row = json.loads(succeed("inspect", chat_package, "--json"))
    assert row["tier"] == "int8"
    assert row["path"] == str(chat_package)


def test_verify_repeats_the_proof_with_and_without_the_reference(chat_package: Path, tiny_gguf: Callable[[str], Path]) -> None:
    assert json.loads(succeed("verify", chat_package, "--json"))["reference"] is None
    full = json.loads(succeed("verify", chat_package, "--reference", tiny_gguf("llama_published"), "--json"))
    assert full["passed"]
    assert full["reference"]["engine"]["passed"]
    assert "Give the file that it was built from" in refuse("verify", chat_package, "--reference", tiny_gguf("llama"))


def test_a_flipped_byte_is_found_by_verify_and_named(chat_package: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(chat_package, tmp_path / "copy.edge")
    weights = copy / "engine/weights.bin"
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 1
    weights.write_bytes(data)
    line = refuse("verify", copy)
    assert "weights.bin: SHA-256 is" in line
    assert "edge build" in line


def test_a_plan_of_a_model_agrees_with_the_plan_of_its_package(chat_package: Path, tiny_gguf: Callable[[str], Path]) -> None:
    words = ("--context", "256", "--threads", "2", "--json")
    built = json.loads(succeed("plan", chat_package, *words))
    model = json.loads(succeed("plan", tiny_gguf("llama_published"), "--tier", "int8", *words))
    assert built["fits"]
    for part in ("weights", "pool", "workspace", "host", "largest_context"):
        assert built[part] == model[part], part
    assert built["largest_context"] == 512  # the model's own
    assert "largest context that fits: 512" in succeed("plan", chat_package)


def test_run_answers_on_stdout_and_keeps_figures_on_stderr(chat_package: Path) -> None:
    done = run("run", chat_package, "hello", "there", "-n", "5", "-c", "128")
    row = json.loads(succeed("run", chat_package, "hello there", "-n", "5", "-c", "128", "--json"))
    assert done.returncode == 0
    assert done.stdout == row["text"] + "\n"
    assert "MB planned" in done.stderr
    assert 1 <= row["answer_tokens"] <= 5
    assert row["planned_bytes"] > 0


def test_run_takes_the_prompt_from_a_pipe_and_the_package_from_the_environment(chat_package: Path) -> None:
    words = ("-n", "4", "--json")
    typed = json.loads(succeed("run", chat_package, "hello", *words))
    assert json.loads(succeed("run", chat_package, "-", *words, feed=b"hello\n"))["text"] == typed["text"]
    assert json.loads(succeed("run", chat_package, *words, feed=b"hello\n"))["text"] == typed["text"]
    assert json.loads(succeed("run", "-m", chat_package, "hello", *words))["text"] == typed["text"]
    assert json.loads(succeed("run", "hello", *words, EDGE_MODEL=str(chat_package)))["text"] == typed["text"]


def test_a_flag_comes_before_its_variable(chat_package: Path) -> None:
    def tokens(*words: str, **changes: str) -> int:
        row = json.loads(succeed("run", chat_package, "hello", "--json", *words, **changes))
        count: int = row["answer_tokens"]
        return count

    assert tokens(EDGE_MAX_TOKENS="2") <= 2
    assert tokens("-n", "1", EDGE_MAX_TOKENS="2") == 1


def test_a_seed_repeats_an_answer(chat_package: Path) -> None:
    words = ("hello", "-n", "12", "--temp", "2", "--json")
    one, two, other = (json.loads(succeed("run", chat_package, *words, "-s", seed)) for seed in ("7", "7", "8"))
    assert one["text"] == two["text"] != other["text"]


def test_a_stop_string_ends_the_answer_in_front_of_it(chat_package: Path) -> None:
    full = json.loads(succeed("run", chat_package, "hello", "-n", "12", "--raw", "--json"))["text"]
    stop = full[2:4]
    row = json.loads(succeed("run", chat_package, "hello", "-n", "12", "--raw", "--json", "--stop", stop))
    assert row["text"] == full[: full.index(stop)]
    assert row["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("words", "feed", "code", "says"),
    [
        ([""], b"", 1, "the prompt is empty"),
        (["-"], b"\xff\xfe", 1, "standard input: byte 0 is not UTF-8"),
        (["hello", "-c", "100000"], b"", 1, "the engine takes 1 to 512"),
        (["hello " * 300, "-c", "64"], b"", 1, "the context 64"),
        (["hello", "--top-p", "2"], b"", 1, "top_p is 2.0. Allowed"),
        (["hello", "--isa", "mmx"], b"", 1, "mmx"),
        (["hello", "-n", "0"], b"", 2, "Invalid value for '-n'"),
    ],
)
def test_a_run_that_cannot_be_is_refused_in_one_line(
    words: list[str], feed: bytes, code: int, says: str, chat_package: Path
) -> None:
    assert says in refuse("run", chat_package, *words, code=code, feed=feed)


def test_a_base_model_completes_text_and_has_no_chat(base_package: Path) -> None:
    assert json.loads(succeed("run", base_package, "hello", "-n", "4", "--json"))["answer_tokens"] >= 1
    assert "no chat template; use edge run" in refuse("chat", base_package, feed=b"hello\n")
    assert "--system has no place" in refuse("run", base_package, "hello", "--system", "be kind")


def test_a_chat_through_a_pipe_answers_each_line(chat_package: Path) -> None:
    done = run("chat", chat_package, "-n", "4", feed=b"hello\nand you?\n")
    assert done.returncode == 0
    assert done.stderr.count("tokens") >= 2
    assert "memory" in done.stderr


def test_a_package_in_a_read_only_folder_runs(chat_package: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(chat_package, tmp_path / "read-only.edge")
    for path in (*copy.rglob("*"), copy):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert json.loads(succeed("run", copy, "hello", "-n", "2", "--json"))["answer_tokens"] >= 1
    finally:
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o755)


def test_bench_prints_one_json_line_with_every_figure(chat_package: Path) -> None:
    text = succeed("bench", chat_package, "--prompt", "40", "--decode", "5", "--threads", "1", "--json")
    row = json.loads(text)
    assert text.count("\n") == 1
    keys = {"engine", "version", "commit", "load_s", "ttft_s", "prefill_tokens_per_s", "decode_tokens_per_s", "peak_rss_bytes",
            "isa", "threads", "weight_bytes_per_token", "weight_gb_per_s", "share_of_bandwidth", "logits_sha256"}  # fmt: skip
    assert keys <= row.keys()
    assert (row["prompt_tokens"], row["decode_tokens"], row["threads"]) == (40, 5, 1)
    again = json.loads(succeed("bench", chat_package, "--prompt", "60", "--decode", "1", "--threads", "2", "--json"))
    assert again["logits_sha256"] == row["logits_sha256"]  # one thread or two, the engine computes the same
    assert "of the" in succeed("bench", chat_package, "--prompt", "16", "--decode", "2")


def test_export_writes_the_model_and_says_what_was_rounded(tmp_path: Path, tiny_gguf: Callable[[str], Path]) -> None:
    gguf = tiny_gguf("llama_published")
    row = json.loads(succeed("export", gguf, "-o", tmp_path / "m.onnx", "--tier", "int4", "--json"))
    assert {path.name for path in tmp_path.iterdir()} == {"m.onnx", "m.onnx.data"}
    assert row["tier"] == "int4"
    assert row["data_bytes"] == (tmp_path / "m.onnx.data").stat().st_size
    assert "--requantise belongs to a tier" in refuse("export", gguf, "--requantise", code=2, cwd=tmp_path)
