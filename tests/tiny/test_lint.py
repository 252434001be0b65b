"""`edge lint` as a user types it: with and without a model, and what is wrong with a text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from edge_process import Edge

BODY = "This is a paragraph of several words, and it goes on until nobody could take it for a title of anything.\n\n"
TEXT = "".join(f"## Part {name}\n\n{BODY * 4}" for name in ("one", "two", "three"))


@pytest.fixture
def manual(tmp_path: Path) -> Path:
    path = tmp_path / "manual.md"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_a_text_is_shown_in_eighty_columns_without_a_model(edge: Edge, manual: Path) -> None:
    text = edge.succeed("lint", manual)
    assert "3 anchors" in text and "(estimated)" in text and "Part two" in text
    assert "\x1b" not in text
    assert all(len(line) <= 80 for line in text.replace(str(manual), "manual.md").splitlines())
    assert edge.succeed("lint", "-", feed=TEXT.encode()).splitlines()[1:] == text.splitlines()[1:]


@pytest.mark.native
@pytest.mark.build
def test_tokens_and_bytes_are_the_models_own_where_one_is_given(
    edge: Edge, manual: Path, chat_package: Path, tiny_gguf: Callable[[str], Path]
) -> None:
    from edge.package import Package

    row = edge.json("lint", manual, "--package", chat_package)
    package, report = Package.open(chat_package), row["files"][0]
    tokenizer = package.open_tokenizer()
    ids = tokenizer.encode_prompt(TEXT)
    assert (report["tokens"], report["tokens_are"]) == (len(ids), "exact")
    for section in report["sections"]:
        begin, end = section["tokens"]
        assert tokenizer.decode(ids[begin:end]).lstrip().startswith("## Part")
        assert section["pages"] == [begin // 32, -(-end // 32)]
    short = edge.json("lint", manual, "--package", chat_package, "--context", "512")["files"][0]
    sizes = {memory["preset"]: memory["bytes"] for memory in short["memory"]}
    planned = edge.json("plan", chat_package, "--context", "512")
    assert sizes == {row["preset"]: row["pool"] for row in planned["presets"]} and sizes["balanced"] < sizes["exact"]
    source = edge.json("lint", manual, "--model", tiny_gguf("llama_published"))
    assert source["files"][0]["sections"] == report["sections"]
    assert edge.json("lint", manual, EDGE_MODEL=str(chat_package))["files"] == row["files"]
    longer = edge.json("lint", manual, "--package", chat_package, "--context", "4096")
    assert longer["files"][0]["memory"][0]["bytes"] > sizes["exact"]


@pytest.mark.native
@pytest.mark.build
def test_a_text_longer_than_the_model_takes_is_said(edge: Edge, tmp_path: Path, chat_package: Path) -> None:
    (tmp_path / "long.md").write_text(TEXT * 4, encoding="utf-8")
    done = edge.run("lint", tmp_path / "long.md", "--package", chat_package)
    assert done.returncode == 0
    assert "tokens are more than" in done.stderr and "(512)" in done.stderr


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"a\n\xff\n", "byte 2 (0xFF) is not UTF-8. Convert it to UTF-8"),
        ("# Titel\n".encode("utf-16"), "byte 0 (0xFF) is not UTF-8"),
        (b"", "is empty. Give at least one character"),
        (b"a" * ((16 << 20) + 1), "more than 16.8 MB of text. Give it in parts"),
    ],
)
def test_a_text_that_cannot_be_read_is_one_line(edge: Edge, tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(data)
    assert says in edge.refuse("lint", path)
    assert says in edge.refuse("lint", "-", feed=data)


def test_a_missing_file_folder_or_word_is_one_line(edge: Edge, tmp_path: Path, manual: Path) -> None:
    assert "No such file" in edge.refuse("lint", tmp_path / "gone.md")
    assert "Is a directory" in edge.refuse("lint", tmp_path)
    assert "FILE" in edge.refuse("lint", code=2)
    assert "gone.edge" in edge.refuse("lint", manual, "--package", tmp_path / "gone.edge")


@pytest.mark.build
def test_a_model_that_is_not_there_is_one_line(edge: Edge, manual: Path) -> None:
    assert "no such file, and no model" in edge.refuse("lint", manual, "--model", "nowhere")


def test_the_articles_window_is_an_option(edge: Edge, manual: Path) -> None:
    narrow, wide = (edge.json("lint", manual, "--anchor-window", window)["files"][0]["zones"] for window in ("1", "512"))
    assert narrow["anchor"] < wide["anchor"]
    assert wide["background"] == wide["section"] == 0


def test_several_texts_are_several_reports(edge: Edge, manual: Path, tmp_path: Path) -> None:
    (tmp_path / "two.txt").write_text(BODY, encoding="utf-8")
    rows = edge.json("lint", manual, tmp_path / "two.txt")["files"]
    assert [len(row["sections"]) for row in rows] == [3, 1]
    assert edge.succeed("lint", manual, tmp_path / "two.txt").count("map: a mark is") == 2


def test_a_picture_is_drawn(edge: Edge, manual: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the bench extra: matplotlib")
    assert "no such folder" in edge.refuse("lint", manual, "--png", tmp_path / "no/x.png")
    (tmp_path / "zh.md").write_text("# 第一章 概述\n\n" + BODY, encoding="utf-8")
    done = edge.run("lint", manual, tmp_path / "zh.md", "--png", tmp_path / "x.png")
    assert done.returncode == 0
    assert done.stderr == "" or re.fullmatch(r"edge: .*x.png: no font here has 5 of its characters, .*\n", done.stderr)
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(edge.succeed("lint", manual, "--json", "--png", tmp_path / "y.png"))["files"]


def test_without_matplotlib_a_picture_is_refused_in_one_line(edge_command: list[str], manual: Path) -> None:
    *python, code = edge_command
    hide = (
        "import importlib.util as u; find = u.find_spec; u.find_spec = lambda n, *a: find(n, *a) if n != 'matplotlib' else None"
    )
    hidden = Edge([*python, f"{hide}; {code}"])
    assert "--png needs matplotlib: ./install.sh --with bench" in hidden.refuse("lint", manual, "--png", "x.png")
