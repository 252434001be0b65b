"""A tokenizer folder from the files of a Hugging Face folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hf_folders import ROWS, Json, edit, folder_of, made
from tiny_tokenizers import written

from edge.text.tables import UNUSED
from edge.text.tokenizer_config import TokenizerConfig
from engines.sources.base import TokenizerFiles, TokenizerParts
from engines.sources.hf_tokenizer import write_folder_tokenizer

PUBLIC = "Café déjà vu — 123 😊"


@pytest.mark.parametrize("vocabulary", ["byte_parts", "piece_parts"])
def test_both_forms_of_a_model_give_the_same_ids(vocabulary: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    parts: TokenizerParts = request.getfixturevalue(vocabulary)
    gguf = written(parts, tmp_path / "gguf")
    source = tmp_path / "hf"
    source.mkdir()
    shutil.copyfile(tmp_path / "gguf" / "tokenizer.json", source / "tokenizer.json")  # as a model's folder would have it
    folder = made(source, tmp_path / "out", len(parts.tokens))
    for text in (PUBLIC, f"{PUBLIC}\n\n {PUBLIC}", "Hello the world <|im_end|>", "<bos>the<eos>", "你好  x\t\x00"):
        for specials in (False, True):
            ids = gguf.encode(text, specials=specials)
            assert folder.encode(text, specials=specials) == ids
            assert folder.decode(ids) == gguf.decode(ids)
        assert folder.encode_prompt(text) == gguf.encode_prompt(text)


def test_the_folder_holds_our_form_and_the_models_own(tmp_path: Path) -> None:
    source = folder_of("qwen2", tmp_path)
    made(source, tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"tokenizer.json", "tables.bin", "tokenizer_config.json", "chat_template.jinja"}
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()


def test_rows_without_a_token_decode_to_nothing(tmp_path: Path) -> None:
    tokenizer = made(folder_of("qwen2", tmp_path), tmp_path / "out")
    assert tokenizer.vocab_size == ROWS and tokenizer._tables.kinds[ROWS - 1] == UNUSED
    assert tokenizer.decode([ROWS - 1], specials=True) == ""


def test_an_added_token_without_a_row_is_text(tmp_path: Path) -> None:
    source = folder_of("qwen2", tmp_path)
    last = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"][-1]
    tokenizer = made(source, tmp_path / "out", last["id"])
    ids = tokenizer.encode(last["content"], specials=True)
    assert len(ids) > 1 and tokenizer.decode(ids) == last["content"]


def test_a_character_that_is_a_control_token_stays_text(tmp_path: Path) -> None:
    source = folder_of("llama2", tmp_path)

    def mark(values: Json) -> None:
        place = values["model"]["vocab"]["~"] = len(values["model"]["vocab"])
        values["added_tokens"].append({"id": place, "content": "~", "special": True})

    edit(source / "tokenizer.json", mark)
    tokenizer = made(source, tmp_path / "out")
    assert tokenizer.decode(tokenizer.encode("a~b", specials=False)) == " a~b"


def test_what_a_vocabulary_lacks_is_left_out_and_its_neighbours_merge(tmp_path: Path) -> None:
    """As in the library: SmolLM2 lacks 21 bytes."""
    from tokenizers import Tokenizer as Library

    source = folder_of("smollm2", tmp_path)
    edit(source / "tokenizer.json", lambda values: values["model"]["vocab"].pop("\u0106"))  # byte 6
    library = Library.from_file(str(source / "tokenizer.json"))
    tokenizer = made(source, tmp_path / "out")
    for text in ("\x06", "the\x06", "!\x06!", "\x06\x06\x06"):
        assert tokenizer.encode(text, specials=False) == library.encode(text).ids


def test_no_merge_makes_a_control_token(tmp_path: Path) -> None:
    source = folder_of("llama2", tmp_path)

    def merge(values: Json) -> None:
        vocab, merges = values["model"]["vocab"], values["model"]["merges"]
        vocab |= {"</": len(vocab), "s>": len(vocab) + 1}
        merges[:0] = [["<", "/"], ["s", ">"], ["</", "s>"]]

    edit(source / "tokenizer.json", merge)
    tokenizer = made(source, tmp_path / "out")
    assert [tokenizer.token_text(token) for token in tokenizer.encode("</s>", specials=False)] == [" ", "</", "s>"]
    assert tokenizer.encode("</s>", specials=True) == [2]


def config_of(family: str, tmp_path: Path, **files: Callable[[Json], Any]) -> TokenizerConfig:
    source = folder_of(family, tmp_path)
    for name, change in files.items():
        edit(source / f"{name}.json", change)
    (tmp_path / "out").mkdir()
    return write_folder_tokenizer(TokenizerFiles(source, ROWS), tmp_path / "out")


def test_ends_of_both_configurations_count_and_the_tokenizers_own_comes_first(tmp_path: Path) -> None:
    config = config_of(
        "llama2",
        tmp_path,
        config=lambda values: values.update(eos_token_id=7),
        generation_config=lambda values: values.update(eos_token_id=[9, 7, 8]),
    )
    assert config.eos_token_ids == (2, 7, 8, 9)


@pytest.mark.parametrize(("said", "adds"), [(True, True), (False, False), (None, True)])
def test_tokenizer_config_decides_on_bos_where_it_says_something(said: bool | None, adds: bool, tmp_path: Path) -> None:
    config = config_of("llama2", tmp_path, tokenizer_config=lambda values: values.update(add_bos_token=said))
    assert (config.add_bos, config.bos_token_id) == (adds, 1)


def test_a_token_map_names_what_tokenizer_config_does_not(tmp_path: Path) -> None:
    config = config_of(
        "llama2",
        tmp_path,
        tokenizer_config=lambda values: values.pop("unk_token") and values.update(pad_token="</s>"),
        special_tokens_map=lambda values: values.update(unk_token={"content": "<unk>"}, pad_token="<s>"),
    )
    assert (config.unk_token_id, config.pad_token_id) == (0, 2)


def template_of(tmp_path: Path) -> str | None:
    path = tmp_path / "out" / "chat_template.jinja"
    return path.read_text(encoding="utf-8") if path.exists() else None


def test_a_template_of_its_own_file_wins(tmp_path: Path) -> None:
    source = folder_of("qwen2", tmp_path)
    (source / "chat_template.jinja").write_bytes("ja\r\nñ".encode())
    made(source, tmp_path / "out")
    assert (tmp_path / "out" / "chat_template.jinja").read_bytes() == "ja\r\nñ".encode()


def test_of_several_templates_the_default_one_is_taken(tmp_path: Path) -> None:
    made(folder_of("tekken", tmp_path), tmp_path / "out")
    assert (template_of(tmp_path) or "").startswith("{{ bos_token }}")


def test_a_base_model_has_no_template(tmp_path: Path) -> None:
    made(folder_of("gpt2", tmp_path), tmp_path / "out")
    assert template_of(tmp_path) is None
