"""What a model folder says of its licence."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.sources.model_card import read_licence


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, ("", "")),
        ({"README.md": "---\nlicense: mit\nlanguage: en\n---\n"}, ("mit", "")),
        ({"README.md": "---\r\nlicense: \"gemma\"\r\nlicense_link: https://x/y\r\n---\r\n"}, ("gemma", "https://x/y")),
        ({"README.md": "---\nlicense: other\nlicense_name: qwen\nlicense_link: LICENSE\n---\n"}, ("qwen", "LICENSE")),
        ({"README.md": "---\nlicense: other\n---\n"}, ("other", "")),
        ({"README.md": "# Title\nlicense: mit\n", "LICENSE": "\n\n   Apache License\n  Version 2.0\n"}, ("apache-2.0", "")),
        ({"README.md": "---\nmodel: x\n---\n", "LICENSE.txt": "LLAMA 3.2 LICENSE\n"}, ("LLAMA 3.2 LICENSE", "")),
        ({"README.md": "---\nlicense: a\x1b[2Jb\n---\n"}, ("a [2Jb", "")),
        ({"README.md": "---\nlicense: " + "x" * 200 + "\n---\n"}, ("x" * 97 + "...", "")),
        ({"LICENSE": "\n"}, ("", "")),
    ],
)  # fmt: skip
def test_the_card_comes_first_then_the_text(files: dict[str, str], found: tuple[str, str], tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content.encode())
    assert read_licence(tmp_path) == found
