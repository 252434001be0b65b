"""`edge bench compare` as a user types it, with stand-ins for the other engines, and ONNX Runtime itself."""

from __future__ import annotations

import json
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from edge_process import Edge

pytestmark = [pytest.mark.native, pytest.mark.build]

LOAD = ("--prompt", "20", "--decode", "3", "--threads", "1")
LLAMA = ("--engine", "llama.cpp", "--rounds", "1")


def stand_in(path: Path, body: str) -> Path:
    """A Python that runs `body` in place of the script that it is given; `job` is what it was asked for."""
    path.write_text(f"#!{sys.executable}\nimport json, os, sys, time\njob = json.load(sys.stdin)\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def quick(tmp_path: Path) -> Path:
    return stand_in(
        tmp_path / "quick",
        'print(json.dumps({"prefill_tokens_per_s": 5.0 + job["flash"], "decode_tokens_per_s": 4.0, "ttft_s": 0.25, '
        '"load_s": 0.5, "peak_rss_bytes": 10**6, "tokens": len(job["ids"])}))',
    )


def test_onnx_runtime_is_measured_on_our_export_and_a_missing_engine_is_a_row(
    edge: Edge, chat_package: Path, tmp_path: Path
) -> None:
    bare = stand_in(tmp_path / "bare", 'print(json.dumps({"error": "not installed in it", "is_missing": True}))')
    absent = ("--python", f"llama.cpp={bare}", "--python", f"openvino-genai={bare}")
    row = edge.json("bench", "compare", chat_package, *LOAD, *absent, "--rounds", "2")
    engines = row["loads"][0]["engines"]
    assert list(engines) == ["edge-zero", "llama.cpp", "llama.cpp flash", "openvino-genai", "onnxruntime"]
    for name in ("edge-zero", "onnxruntime"):
        assert engines[name]["failure"] is None
        assert len(engines[name]["runs"]) == 2
        assert min(engines[name]["best"].values()) > 0
    assert engines["llama.cpp"]["mend"] == f"{bare} -m pip install llama-cpp-python"
    assert row["loads"][0]["ours_over_theirs"]["onnxruntime"]["decode_tokens_per_s"] > 0
    assert row["loads"][0]["ours_over_theirs"]["llama.cpp"]["decode_tokens_per_s"] is None


def test_each_prompt_has_a_table_and_every_engine_gets_the_same_tokens(edge: Edge, chat_package: Path, quick: Path) -> None:
    words = ("bench", "compare", chat_package, *LLAMA, "--python", f"llama.cpp={quick}", "--prompt", "20,40", "--decode", "3")
    row = edge.json(*words)
    assert [load["engines"]["llama.cpp"]["runs"][0]["tokens"] for load in row["loads"]] == [20, 40]
    assert row["loads"][0]["engines"]["llama.cpp flash"]["best"]["prefill_tokens_per_s"] == 6.0
    text = edge.succeed(*words)
    for word in ("prompt 20, decode 3", "prompt 40, decode 3", "llama.cpp flash", "edge-zero", "(median)"):
        assert word in text


def test_an_engine_that_fails_is_a_row_with_its_reason(edge: Edge, chat_package: Path, tmp_path: Path) -> None:
    python = stand_in(tmp_path / "broken", 'sys.exit("GGUF of a kind that is not known")')
    text = edge.succeed("bench", "compare", chat_package, *LOAD, *LLAMA, "--python", f"llama.cpp={python}")
    assert "\nllama.cpp, llama.cpp flash: failed: ended with code 1: GGUF of a kind that is not known\n" in text


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--engine", "lama.cpp"], 1, "--engine lama.cpp: no engine to compare with. Did you mean llama.cpp?"),
        (["--python", "llama.cpp"], 1, "--python llama.cpp: expected ENGINE=PATH"),
        (["--python", "llama.cpp=/nowhere/python"], 1, "no program at /nowhere/python that can be run"),
        (["--prompt", "512,many"], 2, "--prompt 512,many: expected token counts with commas between"),
        (["--prompt", "500", "--decode", "13"], 1, "are 513 tokens, the engine takes 512"),
        (["--gguf", "nowhere.gguf"], 1, "--gguf nowhere.gguf: no such file"),
        (["--plot", "nowhere/plot.png"], 1, "--plot "),
    ],
)
def test_what_cannot_be_compared_is_refused(edge: Edge, chat_package: Path, words: list[str], code: int, says: str) -> None:
    assert says in edge.refuse("bench", "compare", chat_package, *words, code=code)


def test_a_package_whose_model_is_gone_asks_for_it(
    edge: Edge, chat_package: Path, tmp_path: Path, quick: Path, tiny_gguf: Callable[[str], Path]
) -> None:
    copy = shutil.copytree(chat_package, tmp_path / "copy.edge")
    manifest = json.loads((copy / "manifest.json").read_text())
    gone = tmp_path / "gone.gguf"
    manifest["source"]["name"] = str(gone)
    (copy / "manifest.json").write_text(json.dumps(manifest))
    words = ("bench", "compare", copy, *LOAD, *LLAMA, "--python", f"llama.cpp={quick}")
    line = edge.refuse(*words)
    assert f"{gone}: the model that the package was built from is not here. Give the model with --gguf FILE" in line
    gone.mkdir()
    assert "llama.cpp, llama.cpp flash: failed: reads GGUF files, and the package was built from a folder" in edge.succeed(
        *words
    )
    gone.rmdir()
    shutil.copy(tiny_gguf("llama"), gone)
    assert "is not the file that the package was built from" in edge.refuse(*words)
    assert edge.json(*words, "--gguf", gone)["model"] == str(gone)


def test_an_interrupt_ends_the_engines_and_leaves_nothing_behind(
    edge_command: list[str], chat_package: Path, tmp_path: Path
) -> None:
    scratch, numbers = tmp_path / "scratch", tmp_path / "numbers"
    scratch.mkdir()
    slow = stand_in(tmp_path / "slow", f"open({str(numbers)!r}, 'w').write(str(os.getpid())); time.sleep(60)")
    words = [*edge_command, "bench", "compare", str(chat_package), *LOAD, *LLAMA, "--python", f"llama.cpp={slow}"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={"TMPDIR": str(scratch), "PATH": "/usr/bin:/bin"}
    ) as process:
        deadline = time.monotonic() + 60
        while not (numbers.exists() and numbers.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert list(scratch.iterdir()) != []
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, b"")
    assert b"Traceback" not in err
    assert list(scratch.iterdir()) == []
    assert not Path(f"/proc/{numbers.read_text()}").exists()


def test_a_reader_that_left_is_no_error(edge_command: list[str], chat_package: Path, quick: Path) -> None:
    words = [*edge_command, "bench", "compare", str(chat_package), *LOAD, *LLAMA, "--python", f"llama.cpp={quick}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == 141
    assert b"Traceback" not in said
