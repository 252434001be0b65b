"""The subcommands that answer, as a user types them: run and chat."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from edge_process import Edge

from edge import footprint
from edge.cli.main import main
from edge.executors.native import NativeExecutor
from edge.kv_budget import KvChoice
from edge.monitors.memory import MachineMemory
from edge.package import Package
from edge.text.tokenizer import Tokenizer

pytestmark = [pytest.mark.native, pytest.mark.build]


def test_run_answers_on_stdout_and_keeps_figures_on_stderr(edge: Edge, chat_package: Path) -> None:
    done = edge.run("run", chat_package, "hello", "there", "-n", "5", "-c", "128")
    row = edge.json("run", chat_package, "hello there", "-n", "5", "-c", "128")
    assert done.returncode == 0
    assert done.stdout == row["text"] + "\n"
    assert re.search(r"memory planned [0-9.]+ MB, used [0-9.]+ MB]\n$", done.stderr)
    assert 1 <= row["answer_tokens"] <= 5
    assert row["planned_bytes"] > 0


def test_run_takes_the_prompt_from_a_pipe_and_the_package_from_the_environment(edge: Edge, chat_package: Path) -> None:
    words = ("-n", "4")
    typed = edge.json("run", chat_package, "hello", *words)
    assert edge.json("run", chat_package, "-", *words, feed=b"hello\n")["text"] == typed["text"]
    assert edge.json("run", chat_package, *words, feed=b"hello\n")["text"] == typed["text"]
    assert edge.json("run", "-m", chat_package, "hello", *words)["text"] == typed["text"]
    assert edge.json("run", "hello", *words, EDGE_MODEL=str(chat_package))["text"] == typed["text"]


def test_a_package_on_the_command_line_comes_before_the_variable(edge: Edge, chat_package: Path) -> None:
    words, elsewhere = ("-n", "4"), "/nowhere/other.edge"
    typed = edge.json("run", chat_package, "hello", *words)["text"]
    assert edge.json("run", chat_package, "hello", *words, EDGE_MODEL=elsewhere)["text"] == typed
    assert edge.json("run", chat_package, *words, feed=b"hello", EDGE_MODEL=elsewhere)["text"] == typed
    assert edge.json("run", "-m", chat_package, "hello", *words, EDGE_MODEL=elsewhere)["text"] == typed
    assert edge.json("run", "hello", *words, EDGE_MODEL=str(chat_package))["text"] == typed
    answer = edge.succeed("chat", chat_package, *words, feed=b"hello\n", EDGE_MODEL=elsewhere)
    assert answer == edge.succeed("chat", *words, feed=b"hello\n", EDGE_MODEL=str(chat_package))
    missing = edge.run("run", elsewhere, "hello", EDGE_MODEL=str(chat_package))
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "/nowhere/other.edge: no such folder" in missing.stderr


def test_a_locale_without_letters_changes_neither_text_nor_json(edge: Edge, chat_package: Path) -> None:
    bare = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = ("run", chat_package, "é", "--system", "Réponds", "-n", "8", "--temp", "3", "-s", "5")
    full = edge.json(*words)
    assert not full["text"].isascii()
    assert edge.json(*words, **bare)["text"] == full["text"]
    stop = next(letter for letter in full["text"] if not letter.isascii())
    stopped = edge.json(*words, "--stop", stop, **bare)
    assert stopped["text"] == full["text"].partition(stop)[0]
    assert stopped["finish_reason"] == "stop"


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
        (["hello " * 100, "-c", "64"], b"", 1, "the context 64"),
        (["hello " * 300, "-c", "64"], b"", 1, "at least 139 tokens, the context 64"),
        (["hello", "--top-p", "2"], b"", 1, "top_p is 2.0. Allowed"),
        (["hello", "--isa", "mmx"], b"", 1, "mmx"),
        (["hello", "-n", "0"], b"", 2, "Invalid value for '-n'"),
    ],
)
def test_a_run_that_cannot_be_is_refused_in_one_line(
    edge: Edge, words: list[str], feed: bytes, code: int, says: str, chat_package: Path
) -> None:
    assert says in edge.refuse("run", chat_package, *words, code=code, feed=feed)


def test_what_a_terminal_would_obey_is_shown_and_not_sent(edge: Edge, edge_command: list[str], chat_package: Path) -> None:
    def words(seed: int) -> list[str]:
        return ["run", str(chat_package), "hello", "-n", "200", "--temp", "5", "-s", str(seed)]

    seed = next(seed for seed in range(50) if "\x1b" in edge.json(*words(seed))["text"])
    assert "\x1b" in edge.succeed(*words(seed))
    master, slave = pty.openpty()
    process = subprocess.Popen([*edge_command, *words(seed)], stdout=slave, stderr=subprocess.DEVNULL)
    os.close(slave)
    seen = b""
    with contextlib.suppress(OSError):  # the other side is closed
        while data := os.read(master, 65536):
            seen += data
    os.close(master)
    assert process.wait(60) == 0
    assert b"\x1b" not in seen
    assert "␛".encode() in seen


@pytest.mark.parametrize("command", ["run", "chat"])
def test_an_endless_prompt_is_refused(command: str, edge_command: list[str], chat_package: Path) -> None:
    with Path("/dev/zero").open("rb") as endless:
        done = subprocess.run(
            [*edge_command, command, str(chat_package)], stdin=endless, capture_output=True, check=False, timeout=60
        )
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"Traceback" not in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_a_long_prompt_is_refused_before_it_is_cut_into_tokens(
    chat_package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Tokenizer, "_encode", lambda *_, **__: pytest.fail("it was cut into tokens"))
    for words in (["run", str(chat_package), "hello " * 100_000], ["run", str(chat_package), "--raw", "x" * 600_000]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert (ended.value.code, capsys.readouterr().out) == (1, "")


def test_a_base_model_completes_text_and_has_no_chat(edge: Edge, base_package: Path) -> None:
    assert edge.json("run", base_package, "hello", "-n", "4")["answer_tokens"] >= 1
    assert "no chat template; use edge run" in edge.refuse("chat", base_package, feed=b"hello\n")
    assert "--system has no place" in edge.refuse("run", base_package, "hello", "--system", "be kind")


def test_a_chat_through_a_pipe_answers_each_line(edge: Edge, chat_package: Path) -> None:
    done = edge.run("chat", chat_package, "-n", "4", feed=b"hello\nand you?\n")
    assert done.returncode == 0
    answers, notes = done.stdout.split("\n"), done.stderr.splitlines()
    assert (len(answers), answers[-1]) == (3, "")  # two lines; the tiny model says no line break here
    assert all(answers[:2])
    assert len(notes) == 2
    for note in notes:
        assert re.fullmatch(r"\[[1-4] tokens .*\| memory planned [0-9.]+ MB, used [0-9.]+ MB.*]", note)


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
    package = str(chat_package)
    for words in (["run", package, "hello"], ["chat", package], ["bench", package, "--prompt", "300"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        out, line = capsys.readouterr()
        assert (ended.value.code, out) == (1, "")
        assert "30.0 MB are available. No context fits: free some memory" in line
        assert line.endswith("To try it all the same: --ignore-budget\n")
    for words in (["run", package, "hello"], ["bench", package, "--prompt", "300"]):
        with pytest.raises(pytest.fail.Exception, match="the engine was opened"):
            main([*words, "--ignore-budget"])


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["run", "hello", "-n", "500"], r"--ctx-size \d+"),
        (["chat"], r"--ctx-size \d+"),
        (["bench", "--prompt", "400"], r"--prompt and --decode of \d+ tokens together"),
    ],
)
def test_what_would_fit_is_said_in_options_that_the_command_has(
    words: list[str], remedy: str, chat_package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = Package.open(chat_package)
    small, large = (
        footprint.package_plan(package, KvChoice("exact"), context=context, with_text=words[0] != "bench").total
        for context in (256, 512)
    )
    assert small < large
    monkeypatch.setattr(footprint, "machine_memory", lambda: MachineMemory(total=small, available=small))
    command, *rest = words
    with pytest.raises(SystemExit) as ended:
        main([command, str(chat_package), *rest])
    assert ended.value.code == 1
    assert re.search(rf"What fits: {remedy}\. To try it", capsys.readouterr().err)


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
