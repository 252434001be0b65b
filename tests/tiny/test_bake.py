"""Prefixes from a text to an answer: baked by the command, used by chats and runs of other processes, refused where they do not
fit."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from edge_process import Edge
from synthetic import LLAMA, TinyModel

pytest.importorskip("edge._core", reason="needs the native core: pip install .")
pytest.importorskip("onnxruntime", reason="needs the build extra")

from edge.cli.bake import command as bake_command
from edge.config import InferenceConfig
from edge.policies import RAISED_SHARES, PolicyName

MODEL = replace(LLAMA, head_dim=32, context=2048, type="Q4_1")
QUESTION = b"What is the world?\n"
DOCUMENT = "".join(
    f"# Part {number}\n\n" + "the world is in the hand of an other and the rest is here. " * 8 + "\n\n"
    for number in range(1, 7)
)


@pytest.fixture(scope="module")
def built(edge: Edge, folder: Path, tiny_gguf: Callable[[TinyModel], Path]) -> Path:
    out = folder / "bakeable.edge"
    edge.succeed("build", tiny_gguf(MODEL), "--tier", "fp16", "--verify-tokens", "64", "-o", out)
    return out


@pytest.fixture(scope="module")
def manual(folder: Path) -> Path:
    path = folder / "manual.md"
    path.write_text(DOCUMENT, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def baked(edge: Edge, built: Path, manual: Path) -> Path:
    """A package with a prefix `manual` of the preset balanced. Do not change it."""
    out = built.with_name("baked.edge")
    shutil.copytree(built, out)
    edge.succeed("bake", out, "--name", "manual", "--file", manual, "--kv-preset", "balanced")
    return out


@pytest.fixture
def own(baked: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(baked, tmp_path / "own.edge"))


def prefix_file(package: Path, name: str = "manual") -> Path:
    return package / "baked" / f"{name}.pages"


def test_a_baked_text_is_listed_with_its_sections(baked: Path, edge: Edge) -> None:
    row = edge.json("bake", baked)["prefixes"][0]
    assert (row["name"], row["preset"], row["error"]) == ("manual", "balanced", None)
    assert row["tokens"] % 32 == 0 and row["bytes"] == prefix_file(baked).stat().st_size
    titles = [cut["title"] for cut in row["cuts"]]
    assert len(titles) == 5 and titles[-1] == "" and set(titles[:-1]) < {f"Part {number}" for number in range(1, 7)}
    assert all(cut["tokens"] % 32 == 0 and cut["own_bytes"] > 0 for cut in row["cuts"])
    assert [cut["tokens"] for cut in row["cuts"]] == sorted({cut["tokens"] for cut in row["cuts"]})
    table = edge.succeed("bake", baked)
    assert f"manual  {row['tokens']:>6,}  balanced" in table
    assert edge.json("inspect", baked)["prefixes"] == [row]
    assert "manual" in edge.succeed("inspect", baked)


def test_a_chat_with_a_prefix_says_what_a_chat_with_the_file_says(baked: Path, manual: Path, edge: Edge) -> None:
    words = ("--max-tokens", "24", "--kv-preset", "balanced")
    talk = QUESTION + b"And the other?\n/clear\nWhat is the hand?\n"
    whole = edge.run("chat", baked, "--file", manual, *words, feed=talk)
    short = edge.run("chat", baked, "--prefix", "manual", "--max-tokens", "24", feed=talk)
    assert (whole.returncode, short.returncode) == (0, 0), short.stderr
    assert short.stdout == whole.stdout and len(short.stdout.split("\n")) >= 3
    prompt = [line.split("prompt ")[1].split(" |")[0] for line in short.stderr.splitlines() if "prompt " in line]
    assert len(prompt) == 3
    for line in (prompt[0], prompt[2]):  # behind /clear the prefix is there again
        tokens, new = (int(word.replace(",", "")) for word in line.removesuffix(" new").split(" tokens, "))
        assert new < 64 < tokens


def test_a_run_with_a_prefix_copies_nothing(baked: Path, edge: Edge) -> None:
    row = edge.json("run", baked, "--prefix", "manual", "What is the world?", "--max-tokens", "8")
    tokens = edge.json("bake", baked)["prefixes"][0]["tokens"]
    assert row["reused_tokens"] == tokens and row["kv_bytes_copied"] == 0 and row["kv_preset"] == "balanced"
    assert row["kv_baked_bytes"] < prefix_file(baked).stat().st_size
    assert row["kv_pool_bytes"] < row["kv_baked_bytes"], "the pool has room for what is new, not for the prefix"
    assert row["peak_rss_bytes"] <= 1.05 * row["planned_bytes"]


def test_a_glossary_is_a_system_message(own: Path, manual: Path, edge: Edge) -> None:
    edge.succeed("bake", own, "--name", "rules", "--system-file", manual, "--cuts", "0")
    whole = edge.json("run", own, "What?", "--system", DOCUMENT.rstrip("\n"), "--max-tokens", "12")
    short = edge.json("run", own, "What?", "--prefix", "rules", "--max-tokens", "12")
    assert short["text"] == whole["text"] and short["prompt_tokens"] == whole["prompt_tokens"]
    assert short["reused_tokens"] > 900 and whole["reused_tokens"] == 0
    refused = edge.refuse("run", own, "What?", "--prefix", "rules", "--system", "Be brief.")
    assert refused.endswith(
        "--prefix rules was baked with another system message. Leave --system out, or bake another: edge bake PACKAGE "
        "--name NAME --system TEXT"
    )


def test_a_prefix_is_replaced_only_by_force_and_removed_by_name(own: Path, manual: Path, edge: Edge) -> None:
    words = ("bake", own, "--name", "manual", "--file", manual)
    assert edge.refuse(*words).endswith("manual.pages: is there already. Replace it with --force, or choose another --name")
    before = prefix_file(own).stat().st_ino
    assert edge.json(*words, "--force", "--cuts", "1")["preset"] == "safe"
    assert prefix_file(own).stat().st_ino != before and len(list((own / "baked").iterdir())) == 1
    assert edge.succeed("bake", own, "--remove", "manual").startswith("removed ")
    assert "nothing is baked" in edge.succeed("bake", own)
    assert edge.refuse("bake", own, "--remove", "manual").endswith(f"Bake it: edge bake {own} --name NAME --file FILE")


def test_a_damaged_prefix_is_baked_again_without_force(own: Path, manual: Path, edge: Edge) -> None:
    words, data = ("bake", own, "--name", "manual", "--file", manual, "--kv-preset", "balanced"), prefix_file(own).read_bytes()
    for broken in (data[:-4096], data[:-5000] + bytes([data[-5000] ^ 1]) + data[-4999:]):  # cut short, another SHA-256
        damage(prefix_file(own), broken)
        edge.succeed(*words)
        assert edge.json("verify", own)["prefixes"] == ["manual"]
    assert "Replace it with --force" in edge.refuse(*words)


def test_force_replaces_a_prefix_and_uses_no_package_whose_verdict_failed(own: Path, manual: Path, edge: Edge) -> None:
    plain = json.loads((own / "manifest.json").read_text("utf-8"))
    plain["verdicts"]["tier"] |= {"kl_mean": 0.5, "passed": False}
    (own / "manifest.json").write_text(json.dumps(plain), encoding="utf-8")
    words = ("bake", own, "--name", "manual", "--file", manual)
    assert "use it all the same with --ignore-verdict" in edge.refuse(*words, "--force")
    assert "Replace it with --force" in edge.refuse(*words, "--ignore-verdict")
    edge.succeed(*words, "--force", "--ignore-verdict")


@pytest.mark.parametrize("policy", [policy for policy in RAISED_SHARES if policy != "uniform"])
def test_pages_are_baked_at_the_preset_whatever_policy_is_configured(
    own: Path, manual: Path, policy: PolicyName, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, before = replace(InferenceConfig.load(), kv_policy=policy), prefix_file(own).read_bytes()
    monkeypatch.setattr(InferenceConfig, "load", lambda: config)
    words = (own, "--name", "manual", "--file", manual, "--kv-preset", "balanced", "--force")
    CliRunner().invoke(bake_command, list(map(str, words)), catch_exceptions=False)
    assert prefix_file(own).read_bytes() == before


def test_prefixes_of_a_package_are_checked_by_verify(own: Path, edge: Edge) -> None:
    report = edge.json("verify", own)
    assert report["passed"] and report["prefixes"] == ["manual"]
    with prefix_file(own).open("r+b") as file:
        file.seek(-5000, os.SEEK_END)
        file.write(b"\1")
    line = edge.refuse("verify", own)
    assert "manual.pages: SHA-256 of its pages is " in line
    edge.succeed("run", own, "--prefix", "manual", "What?", "-n", "2")  # a load does not read them


def damage(path: Path, content: bytes) -> None:
    path.unlink()
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data[:-4096], "manual.pages: cut short, it has "),
        (lambda data: data[:20], "manual.pages: cut short, it has 20 bytes"),
        (lambda data: data + b"x", "manual.pages: damaged: "),
        (
            lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:],
            "manual.pages: damaged: its header has another SHA-256",
        ),
        (lambda data: b"", "manual.pages: not a baked prefix"),
        (lambda data: b"# A manual\n" * 1000, "manual.pages: not a baked prefix"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(own: Path, edge: Edge, change: Callable[[bytes], bytes], said: str) -> None:
    damage(prefix_file(own), change(prefix_file(own).read_bytes()))
    line = edge.refuse("chat", own, "--prefix", "manual", feed=QUESTION)
    assert said in line and "edge bake" in line
    assert "damaged" in edge.succeed("bake", own)


def rewrite(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """The header changed, with a hash that is right."""
    from edge.baked.header import BakedHeader, header_bytes, read_header
    from edge.jsons import read_value, write_json

    data = bytearray(path.read_bytes())
    with path.open("rb") as file:
        plain = json.loads(write_json(read_header(file, "")))
    change(plain)
    header: BakedHeader = read_value(plain, BakedHeader, "")
    data[: header.begin] = header_bytes(header).ljust(header.begin, b"\0")
    damage(path, bytes(data))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("contract_version", 1, "baked with contract 1, this is "),
        ("seal_tokens", 64, "baked with seal borders of 64, this is 128"),
        ("model", "Other", "baked with the model Other, this is Tiny llama"),
        ("weights_sha256", "0" * 64, f"baked with weights {'0' * 64}, this is "),
        ("plan_sha256", "0" * 64, f"baked with the plan {'0' * 64}, this is "),
    ],
)
def test_what_another_engine_computed_is_refused_in_one_line(own: Path, edge: Edge, key: str, value: object, said: str) -> None:
    rewrite(prefix_file(own), lambda plain: plain["engine"].update({key: value}))
    line = edge.refuse("run", own, "--prefix", "manual", "What?")
    assert said in line
    assert "another engine's" in edge.succeed("bake", own)


def test_other_presets_names_and_instruction_sets(own: Path, edge: Edge) -> None:
    words = ("run", own, "What?", "-n", "2", "--prefix")
    line = edge.refuse(*words, "manual", "--kv-preset", "safe")
    assert line.endswith(
        "baked with the preset balanced, this is safe. Leave --kv-preset out, or bake it again with --kv-preset safe"
    )
    assert "no prefix 'manul' is baked. Did you mean 'manual'? There are: manual" in edge.refuse(*words, "manul")
    assert "no prefix '../manual' is baked." in edge.refuse(*words, "../manual")
    assert "is no name for a prefix" in edge.refuse("bake", own, "--name", "a/b", "--system", "x " * 400)
    rewrite(prefix_file(own), lambda plain: plain["engine"].update(isa="neon"))
    done = edge.run(*words, "manual")
    assert done.returncode == 0 and "was computed with neon, this runs " in done.stderr
    assert "--file and --prefix" in edge.refuse("chat", own, "--file", "x", "--prefix", "manual", code=2)


def test_what_cannot_be_baked_is_refused_in_one_line(built: Path, base_package: Path, manual: Path, edge: Edge) -> None:
    bake = ("bake", built, "--name", "x")
    assert "less than a page of 32" in edge.refuse(*bake, "--system", "Hi")
    assert "a base model" in edge.refuse("bake", base_package, "--name", "x", "--file", manual)
    assert "nothing to bake" in edge.refuse(*bake, code=2)
    long = manual.with_name("long.md")
    long.write_text(DOCUMENT * 3, encoding="utf-8")
    line = edge.refuse(*bake, "--file", long)
    assert "which with a question needs a context of" in line and line.endswith("the engine takes 2,048. Shorten it")
    assert not (built / "baked").exists()


def test_a_template_that_writes_it_otherwise_is_refused(own: Path, edge: Edge, tmp_path: Path) -> None:
    template = tmp_path / "other.jinja"
    template.write_text("{% for message in messages %}[{{ message.content }}]{% endfor %}", encoding="utf-8")
    words = ("--prefix", "manual", "--chat-template-file", template)
    assert "writes a chat otherwise" in edge.refuse("run", own, "What?", *words)
    line = edge.refuse("chat", own, *words, feed=QUESTION)
    assert "this chat does not begin with the prefix manual" in line and "/set" not in line
    assert line.endswith("bake it again: edge bake PACKAGE --name NAME --file FILE --force")
    refused = edge.refuse("chat", own, "--prefix", "manual", feed=b"/set system Be brief.\n" + QUESTION)
    assert refused.endswith("the prefix manual holds the system message. For another start without --prefix")
    shown = edge.run("chat", own, "--prefix", "manual", feed=b"/show\n")
    assert "\nprefix   manual, in its file\ncontext  " in shown.stderr


def test_a_read_only_package_is_used_and_not_written_to(own: Path, manual: Path, edge: Edge) -> None:
    if os.geteuid() == 0:
        own_baked = own / "baked"
        shutil.rmtree(own_baked)
        own_baked.write_text("in the way")  # root may write anywhere
        line = edge.refuse("bake", own, "--name", "x", "--file", manual)
        assert "cannot be written: " in line or "cannot be read: " in line
        return
    for path in (own, own / "baked"):
        path.chmod(0o555)
    try:
        edge.succeed("run", own, "--prefix", "manual", "What?", "-n", "2")
        line = edge.refuse("bake", own, "--name", "x", "--file", manual)
        assert line.endswith("Check permissions and free space, or copy the package to another place")
        assert "cannot be removed: Permission denied" in edge.refuse("bake", own, "--remove", "manual")
    finally:
        for path in (own, own / "baked"):
            path.chmod(0o755)


def test_ctrl_c_in_a_bake_leaves_nothing(built: Path, manual: Path, edge_command: list[str], tmp_path: Path) -> None:
    package = shutil.copytree(built, tmp_path / "stopped.edge")
    words = [*edge_command, "bake", str(package), "--name", "x", "--file", str(manual), "-t", "1"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for _ in range(6000):  # until it writes
        if list(package.glob("baked/.*")) or process.poll() is not None:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "Traceback" not in said[1] and not (package / "baked").exists()


def chatting(edge_command: list[str], package: Path) -> subprocess.Popen[bytes]:
    """A chat that has answered once."""
    words = [*edge_command, "chat", str(package), "--prefix", "manual", "-n", "4"]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None and process.stderr is not None
    process.stdin.write(QUESTION)
    process.stdin.flush()
    process.stderr.readline()  # the figures of the answer
    return process


def last_line(process: subprocess.Popen[bytes], feed: bytes = QUESTION) -> tuple[int, str]:
    _, said = process.communicate(feed, timeout=120)
    assert b"Traceback" not in said
    return process.returncode, said.decode().strip().splitlines()[-1]


def test_a_file_replaced_while_it_is_mapped_refuses_the_request(own: Path, edge_command: list[str]) -> None:
    process = chatting(edge_command, own)
    data, path = prefix_file(own).read_bytes(), prefix_file(own)
    aside = path.with_name("new")
    aside.write_bytes(data)
    aside.rename(path)
    code, line = last_line(process)
    assert code == 1 and line.endswith("manual.pages: was replaced while it was in use. Start again, which takes the new one")
    process = chatting(edge_command, own)
    path.unlink()
    code, line = last_line(process)
    assert code == 1 and "No such file or directory, while it was in use" in line


def test_a_file_cut_short_while_it_is_mapped_refuses_the_request(own: Path, edge_command: list[str]) -> None:
    process = chatting(edge_command, own)
    with prefix_file(own).open("r+b") as file:
        file.truncate(8192)
    code, line = last_line(process)
    assert code == 1 and line.startswith("edge: ") and "has 8,192 bytes" in line and "when it was opened" in line


def test_weights_cut_short_while_they_are_mapped_end_the_process_with_one_line(own: Path, edge_command: list[str]) -> None:
    process = chatting(edge_command, own)
    with (own / "engine" / "weights.bin").open("r+b") as file:
        file.truncate(4096)
    code, line = last_line(process)
    assert code == 1 and line.startswith(
        f"edge: {own}/engine/weights.bin: was cut short, or its disk failed, while it was in use."
    )


def test_a_plan_has_a_line_for_a_prefix(baked: Path, edge: Edge) -> None:
    row = edge.json("plan", baked, "--prefix", "manual")
    assert row["baked"] == prefix_file(baked).stat().st_size and row["preset"] == "balanced"
    assert row["total"] == sum(row[key] for key in ("weights", "pool", "workspace", "baked", "host"))
    assert row["pool"] < edge.json("plan", baked, "--kv-preset", "balanced")["pool"]
    text = edge.succeed("plan", baked, "--prefix", "manual")
    assert "baked prefixes" in text and [line.split()[-1] for line in text.split("KV precision\n")[1].splitlines()[1:]] == [
        "it",
        "it",
        "version",
        "it",
    ]
    rows = {preset["preset"]: preset for preset in row["presets"]}
    assert [name for name in rows if rows[name]["ready"]] == ["balanced"] and rows["balanced"]["pool"] == row["pool"]


def test_a_budget_is_for_what_stands_behind_a_prefix(baked: Path, edge: Edge) -> None:
    row = edge.json("bake", baked)["prefixes"][0]
    words = (baked, "--prefix", "manual")
    for command in (("plan", *words), ("run", *words, "What?")):
        said = edge.refuse(*command, "--kv-budget", "40kB")
        needs, holds = re.search(r"needs ([0-9,]+) tokens behind its prefix, --kv-budget .* holds ([0-9,]+) at", said).groups()
        assert int(needs) < 100 and int(holds) == 0
    enough = re.search(r"What would hold it: --kv-budget (\d+MB)", said).group(1)
    done = edge.json("run", *words, "What?", "-n", "4", "--kv-budget", enough)
    held = sum(sum(formats.values()) for formats in done["kv_bytes_by_zone"].values())
    assert 0 < held <= done["kv_pool_bytes"] < row["bytes"], "pages of the file are not counted beside those of the pool"


def test_two_processes_map_one_file(baked: Path, edge_command: list[str]) -> None:
    first, second = chatting(edge_command, baked), chatting(edge_command, baked)
    for process in (first, second):
        maps = Path(f"/proc/{process.pid}/smaps").read_text(encoding="utf-8")
        begin = next(i for i, line in enumerate(maps.splitlines()) if line.endswith("manual.pages"))
        entry = dict(line.split(":", 1) for line in maps.splitlines()[begin + 1 : begin + 20] if ":" in line)
        assert " r--s " in maps.splitlines()[begin]
        assert int(entry["Anonymous"].split()[0]) == 0 and int(entry["Rss"].split()[0]) > 0
    answers = [process.communicate(QUESTION, timeout=120)[0] for process in (first, second)]
    assert answers[0] == answers[1] and first.returncode == second.returncode == 0
