"""The subcommands on a tiny model, as a user types them: build, inspect, verify, plan, run, chat, bench, export."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge import footprint
from edge.cli.main import main
from edge.executors.native import NativeExecutor
from edge.monitors.memory import MachineMemory

pytestmark = [pytest.mark.native, pytest.mark.build]


class Edge:
    """The command, as a process of its own."""

    def __init__(self, command: list[str]) -> None:
        self._command = command

    def run(
        self, *words: str | Path, feed: bytes = b"", cwd: Path | None = None, **changes: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*self._command, *map(str, words)],
            input=feed,
            capture_output=True,
            check=False,
            cwd=cwd,
            env={**os.environ, **changes},
            timeout=300,
        )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    def succeed(self, *words: str | Path, feed: bytes = b"", cwd: Path | None = None, **changes: str) -> str:
        """What it prints on stdout."""
        done = self.run(*words, feed=feed, cwd=cwd, **changes)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *words: str | Path, feed: bytes = b"", cwd: Path | None = None, **changes: str) -> Any:
        return json.loads(self.succeed(*words, "--json", feed=feed, cwd=cwd, **changes))

    def refuse(self, *words: str | Path, code: int = 1, feed: bytes = b"", cwd: Path | None = None) -> str:
        """The line with which the command is refused; lines of progress may stand in front."""
        done = self.run(*words, feed=feed, cwd=cwd)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert "Traceback" not in done.stderr
        line = done.stderr.splitlines()[-1]
        assert line.startswith("edge: ")
        return line


@pytest.fixture(scope="module")
def edge(edge_command: list[str]) -> Edge:
    return Edge(edge_command)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose name has a space and letters beyond ASCII."""
    path = tmp_path_factory.mktemp("packages") / "Rifé 日本"
    path.mkdir()
    return path


def build(edge: Edge, folder: Path, gguf: Path, name: str) -> Path:
    pytest.importorskip("onnxruntime", reason="needs the build extra: onnxruntime")
    out = folder / f"{name}.edge"
    edge.succeed("build", gguf, "--tier", "int8", "--target", "cpu", "--verify-tokens", "64", "-o", out)
    return out


@pytest.fixture(scope="module")
def chat_package(edge: Edge, folder: Path, tiny_gguf: Callable[[str], Path]) -> Path:
    return build(edge, folder, tiny_gguf("llama_published"), "chat")


@pytest.fixture(scope="module")
def base_package(edge: Edge, folder: Path, tiny_gguf: Callable[[str], Path]) -> Path:
    return build(edge, folder, tiny_gguf("gemma_published"), "base")


def test_a_build_gets_its_name_from_the_model_and_replaces_only_when_forced(
    edge: Edge, tmp_path: Path, tiny_gguf: Callable[[str], Path]
) -> None:
    pytest.importorskip("onnxruntime", reason="needs the build extra: onnxruntime")
    gguf = tiny_gguf("llama_published")
    row = edge.json("build", gguf, "--tier", "int8", "--verify-tokens", "64", cwd=tmp_path)
    assert Path(row["path"]).name == f"{gguf.stem}.edge"
    assert (row["tier"], row["target"]) == ("int8", "cpu")
    assert [path.name for path in tmp_path.iterdir()] == [f"{gguf.stem}.edge"]
    assert "--force" in edge.refuse("build", gguf, "--tier", "int8", "--verify-tokens", "64", cwd=tmp_path)
    edge.succeed("build", gguf, "--tier", "int8", "--verify-tokens", "64", "--force", cwd=tmp_path)
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
    edge: Edge, words: list[str], says: str, tmp_path: Path, tiny_gguf: Callable[[str], Path]
) -> None:
    model = str(tiny_gguf("llama_published"))
    assert says in edge.refuse("build", *(word.format(model=model) for word in words), cwd=tmp_path)
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
    assert "Give the file that it was built from" in edge.refuse("verify", chat_package, "--reference", tiny_gguf("llama"))


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


def test_run_answers_on_stdout_and_keeps_figures_on_stderr(edge: Edge, chat_package: Path) -> None:
    done = edge.run("run", chat_package, "hello", "there", "-n", "5", "-c", "128")
    row = edge.json("run", chat_package, "hello there", "-n", "5", "-c", "128")
    assert done.returncode == 0
    assert done.stdout == row["text"] + "\n"
    assert "MB planned" in done.stderr
    assert 1 <= row["answer_tokens"] <= 5
    assert row["planned_bytes"] > 0


def test_run_takes_the_prompt_from_a_pipe_and_the_package_from_the_environment(edge: Edge, chat_package: Path) -> None:
    words = ("-n", "4")
    typed = edge.json("run", chat_package, "hello", *words)
    assert edge.json("run", chat_package, "-", *words, feed=b"hello\n")["text"] == typed["text"]
    assert edge.json("run", chat_package, *words, feed=b"hello\n")["text"] == typed["text"]
    assert edge.json("run", "-m", chat_package, "hello", *words)["text"] == typed["text"]
    assert edge.json("run", "hello", *words, EDGE_MODEL=str(chat_package))["text"] == typed["text"]


def test_a_flag_comes_before_its_variable(edge: Edge, chat_package: Path) -> None:
    def tokens(*words: str, **changes: str) -> int:
        row = edge.json("run", chat_package, "hello", *words, **changes)
        count: int = row["answer_tokens"]
        return count

    assert tokens(EDGE_MAX_TOKENS="2") <= 2
    assert tokens("-n", "1", EDGE_MAX_TOKENS="2") == 1


def test_a_seed_repeats_an_answer(edge: Edge, chat_package: Path) -> None:
    words = ("hello", "-n", "12", "--temp", "2")
    one, two, other = (edge.json("run", chat_package, *words, "-s", seed) for seed in ("7", "7", "8"))
    assert one["text"] == two["text"] != other["text"]


def test_a_stop_string_ends_the_answer_in_front_of_it(edge: Edge, chat_package: Path) -> None:
    full = edge.json("run", chat_package, "hello", "-n", "12", "--raw")["text"]
    stop = full[2:4]
    row = edge.json("run", chat_package, "hello", "-n", "12", "--raw", "--stop", stop)
    assert row["text"] == full[: full.index(stop)]
    assert row["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("words", "feed", "code", "says"),
    [
        ([""], b"", 1, "the prompt is empty"),
        (["-"], b"\xff\xfe", 1, "standard input: byte 0 (0xFF) is not UTF-8"),
        (["hello", "-c", "100000"], b"", 1, "the engine takes 1 to 512"),
        (["hello " * 300, "-c", "64"], b"", 1, "the context 64"),
        (["hello", "--top-p", "2"], b"", 1, "top_p is 2.0. Allowed"),
        (["hello", "--isa", "mmx"], b"", 1, "mmx"),
        (["hello", "-n", "0"], b"", 2, "Invalid value for '-n'"),
    ],
)
def test_a_run_that_cannot_be_is_refused_in_one_line(
    edge: Edge, words: list[str], feed: bytes, code: int, says: str, chat_package: Path
) -> None:
    assert says in edge.refuse("run", chat_package, *words, code=code, feed=feed)


def test_a_base_model_completes_text_and_has_no_chat(edge: Edge, base_package: Path) -> None:
    assert edge.json("run", base_package, "hello", "-n", "4")["answer_tokens"] >= 1
    assert "no chat template; use edge run" in edge.refuse("chat", base_package, feed=b"hello\n")
    assert "--system has no place" in edge.refuse("run", base_package, "hello", "--system", "be kind")


def test_a_chat_through_a_pipe_answers_each_line(edge: Edge, chat_package: Path) -> None:
    done = edge.run("chat", chat_package, "-n", "4", feed=b"hello\nand you?\n")
    assert done.returncode == 0
    assert done.stderr.count("tokens") >= 2
    assert "memory" in done.stderr


def test_a_package_in_a_read_only_folder_runs(edge: Edge, chat_package: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(chat_package, tmp_path / "read-only.edge")
    for path in (*copy.rglob("*"), copy):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert edge.json("run", copy, "hello", "-n", "2")["answer_tokens"] >= 1
    finally:
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o755)


def test_what_does_not_fit_is_refused_before_anything_is_allocated(
    chat_package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(footprint, "machine_memory", lambda: MachineMemory(total=30_000_000, available=30_000_000))
    monkeypatch.setattr(NativeExecutor, "open", lambda *_, **__: pytest.fail("the engine was opened"))
    for words in (["run", str(chat_package), "hello"], ["bench", str(chat_package), "--prompt", "300"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        line = capsys.readouterr().err
        assert ended.value.code == 1
        assert "30 MB are available" in line
        assert "--ignore-budget" in line
    with pytest.raises(pytest.fail.Exception, match="the engine was opened"):
        main(["run", str(chat_package), "hello", "--ignore-budget"])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_ended_by_a_signal_says_nothing_more(
    number: signal.Signals, code: int, chat_package: Path, edge_command: list[str]
) -> None:
    words = ["run", str(chat_package), "hello", "--raw", "-n", "400", "--temp", "1", "-s", "1"]
    process = subprocess.Popen([*edge_command, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read(1)  # the answer has begun
    process.send_signal(number)
    _, message = process.communicate(timeout=60)
    assert (process.returncode, message) == (code, b"")


def test_bench_prints_one_json_line_with_every_figure(edge: Edge, chat_package: Path) -> None:
    text = edge.succeed("bench", chat_package, "--prompt", "40", "--decode", "5", "--threads", "1", "--json")
    row = json.loads(text)
    assert text.count("\n") == 1
    keys = {"engine", "version", "commit", "load_s", "ttft_s", "prefill_tokens_per_s", "decode_tokens_per_s", "peak_rss_bytes",
            "isa", "threads", "weight_bytes_per_token", "weight_gb_per_s", "share_of_bandwidth", "logits_sha256"}  # fmt: skip
    assert keys <= row.keys()
    assert (row["prompt_tokens"], row["decode_tokens"], row["threads"]) == (40, 5, 1)
    again = edge.json("bench", chat_package, "--prompt", "60", "--decode", "1", "--threads", "2")
    assert again["logits_sha256"] == row["logits_sha256"]  # one thread or two, the engine computes the same
    assert "of the" in edge.succeed("bench", chat_package, "--prompt", "16", "--decode", "2")


def test_export_writes_the_model_and_says_what_was_rounded(
    edge: Edge, tmp_path: Path, tiny_gguf: Callable[[str], Path]
) -> None:
    gguf = tiny_gguf("llama_published")
    row = edge.json("export", gguf, "-o", tmp_path / "m.onnx", "--tier", "int4")
    assert {path.name for path in tmp_path.iterdir()} == {"m.onnx", "m.onnx.data"}
    assert row["tier"] == "int4"
    assert row["data_bytes"] == (tmp_path / "m.onnx.data").stat().st_size
    assert "--requantise belongs to a tier" in edge.refuse("export", gguf, "--requantise", code=2, cwd=tmp_path)
