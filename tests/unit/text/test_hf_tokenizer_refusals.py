"""Tokenizer files of Hugging Face folders that are not read: each is one line that names file and key."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hf_folders import FIXTURES, ROWS, Json, edit, folder_of, refused
from hypothesis import given
from hypothesis import strategies as st

from edge.errors import SourceError
from engines.sources.hf_tokenizer import read_tokenizer

KEYS = ["type", "id", "content", "pattern", "Regex", "single", "SpecialToken", "Sequence", "special", "normalizers"]


def sets(part: str, **keys: Any) -> Callable[[Json], None]:
    return lambda values: values[part].update(keys)


def puts(**keys: Any) -> Callable[[Json], None]:
    return lambda values: values.update(keys)


def adds(**flags: Any) -> Callable[[Json], None]:
    return lambda values: values["added_tokens"][0].update(flags)


def cuts(*steps: Json) -> Callable[[Json], None]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    return puts(pre_tokenizer={"type": "Sequence", "pretokenizers": [*steps, byte_level]})


ODD = {"type": "Split", "pattern": {"Regex": r"\d+|\D+"}, "behavior": "Isolated", "invert": False}
METASPACE = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True}


@pytest.mark.parametrize(
    ("family", "change", "fact"),
    [
        ("gpt2", puts(normalizer={"type": "Lowercase"}), "normalizer: Lowercase is not read there"),
        ("gpt2", puts(normalizer={"type": "Sequence"}), "normalizers: a sequence without a list"),
        ("gpt2", puts(normalizer=3), "normalizers: '3' is no step"),
        ("gpt2", puts(pre_tokenizer={"type": "Whitespace"}), "pre_tokenizer: Whitespace is not read there"),
        ("gpt2", puts(pre_tokenizer=None), "pre_tokenizer: none is not read there"),
        ("gpt2", puts(pre_tokenizer={"type": "ByteLevel", "add_prefix_space": True}), "ByteLevel (add_prefix_space True)"),
        ("gpt2", cuts(), "pre_tokenizer: cuts text nowhere"),
        ("gpt2", cuts(ODD), r"cuts by an expression that is not known: '\\d+|\\D+'. Known: gpt-2, llama 3, qwen 2"),
        ("gpt2", cuts({**ODD, "pattern": {"String": " "}}), "pre_tokenizer: Split (behavior 'Isolated', invert False) is not"),
        ("gpt2", cuts({"type": "Digits", "individual_digits": False}), "Digits (individual_digits False) is not read"),
        ("llama2", puts(normalizer={"type": "Prepend", "prepend": "_"}), "normalizer: Prepend (prepend '_') is not read"),
        ("mistral", puts(pre_tokenizer=METASPACE), "pre_tokenizer: Metaspace"),
        ("mistral", puts(pre_tokenizer={**METASPACE, "split": False, "prepend_scheme": ["x"]}), "pre_tokenizer: Metaspace"),
        ("llama2", puts(post_processor={"type": "BertProcessing"}), "post_processor: BertProcessing is not read"),
        ("llama2", puts(post_processor={"type": "TemplateProcessing", "single": [1]}), "its template holds '1'"),
        ("llama2", puts(post_processor={"type": "TemplateProcessing", "single": []}), "post_processor: TemplateProcessing"),
        ("gpt2", puts(model=None), "model: is missing"),
        ("gpt2", sets("model", type="Unigram"), "model: is 'Unigram'; BPE is read"),
        ("gpt2", sets("model", byte_fallback=True), "model: byte_fallback is 'True' for a vocabulary of bytes"),
        ("llama2", sets("model", byte_fallback=False), "model: byte_fallback is 'False' for a vocabulary of characters"),
        ("llama2", sets("model", ignore_merges=True), "model: ignore_merges is 'True'"),
        ("gpt2", sets("model", dropout=0.1), "model: dropout is '0.1'"),
        ("gpt2", sets("model", end_of_word_suffix="</w>"), "model: end_of_word_suffix is '</w>'"),
        ("gpt2", sets("model", vocab=[1]), "model.vocab: does not give ids"),
        ("gpt2", sets("model", vocab={"a": "1"}), "model.vocab: does not give ids"),
        ("gpt2", sets("model", vocab={"a": 1 << 60}), "model.vocab: 'a' has the id 1,152,921,504,606,846,976, the model 640"),
        ("gpt2", sets("model", vocab={"a": 1, "b": 1}), "model.vocab: 'b' is not valid text, or has the id of 'a'"),
        ("gpt2", sets("model", vocab={"\ud800": 1}), r"model.vocab: '\ud800' is not valid text"),
        ("gpt2", sets("model", merges="x"), "model.merges: is no list"),
        ("gpt2", sets("model", merges=["a b c"]), "model.merges: 'a b c' is not two tokens"),
        ("gpt2", sets("model", merges=[["a", 1]]), "is not two tokens"),
        ("gpt2", sets("model", merges=["a qqq"]), "model.merges: 'a' 'qqq' needs 'qqq', no token"),
        ("gpt2", sets("model", vocab={"a": 0}, merges=[], unk_token="a"), "model.unk_token: stands for bytes"),
        ("llama2", lambda values: values["model"]["vocab"].pop("<0xC3>"), "model.vocab: lacks 1 byte tokens, <0xC3> first"),
        ("gpt2", puts(added_tokens={}), "added_tokens: is no list"),
        ("gpt2", adds(id="1"), "added_tokens: \"{'id': '1'"),
        ("gpt2", adds(id=-1), "added_tokens: '<|endoftext|>' has the id -1"),
        ("gpt2", adds(id=3), "added_tokens: '<|endoftext|>' is not valid text, or has the id of another"),
        ("smollm2", adds(id=600), "added_tokens: '<|endoftext|>' has the id 600, model.vocab says 0"),
        ("gpt2", adds(single_word=True), "counts only as a word of its own"),
        ("llama2", adds(normalized=True), "added_tokens: '<unk>' is sought behind the normalizer"),
    ],
)  # fmt: skip
def test_what_is_not_read_or_does_not_fit_is_named(
    family: str, change: Callable[[Json], Any], fact: str, tmp_path: Path
) -> None:
    source = folder_of(family, tmp_path)
    edit(source / "tokenizer.json", change)
    assert fact in refused(source, tmp_path / "out").removeprefix(f"{source / 'tokenizer.json'}: ")


@pytest.mark.parametrize(
    ("file", "content", "fact"),
    [
        ("tokenizer.json", "{", "tokenizer.json: line 1: not JSON"),
        ("tokenizer_config.json", "[]", "tokenizer_config.json: does not hold keys and values"),
        ("tokenizer_config.json", '{"add_bos_token": 1}', "key add_bos_token: is not true or false"),
        ("tokenizer_config.json", '{"bos_token": 1}', "key bos_token: is neither text nor an object"),
        ("tokenizer_config.json", '{"chat_template": 1}', "key chat_template: is not valid text"),
        ("tokenizer_config.json", '{"chat_template": "\\ud800"}', "key chat_template: is not valid text"),
        ("tokenizer_config.json", '{"chat_template": [{"name": "x"}, 1]}', "of its 2 templates none is named default"),
        ("special_tokens_map.json", '{"pad_token": []}', "special_tokens_map.json: key pad_token: is neither"),
        ("config.json", '{"eos_token_id": "1"}', "config.json: key eos_token_id: is no token id"),
        ("generation_config.json", '{"eos_token_id": [1, -2]}', "generation_config.json: key eos_token_id: is no token id"),
        ("config.json", '{"eos_token_id": 640}', "eos_token_id, bos_token_id: 640 is no token of 640"),
        ("chat_template.jinja", b"\xff", "chat_template.jinja: byte 0 is not UTF-8"),
        ("chat_template.jinja", b" " * ((1 << 20) + 1), "chat_template.jinja: has 1,048,577 bytes, over"),
    ],
)
def test_a_broken_file_beside_it_is_named(file: str, content: str | bytes, fact: str, tmp_path: Path) -> None:
    source = folder_of("gpt2", tmp_path)
    (source / file).write_bytes(content.encode() if isinstance(content, str) else content)
    assert fact in refused(source, tmp_path / "out")


ANY_JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-3, 700), st.floats(), st.text(max_size=4), st.sampled_from(["BPE", "Split"])
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)),
    max_leaves=8,
)


@given(data=st.data())
def test_any_other_values_give_one_error_or_a_tokenizer(data: st.DataObject) -> None:
    family = data.draw(st.sampled_from(["qwen2", "llama2", "mistral"]))
    values = json.loads((FIXTURES / family / "tokenizer.json").read_text(encoding="utf-8"))
    part: Any = values
    while True:  # down to some place in the file, which gets another value
        keys = list(part) if isinstance(part, dict) else list(range(len(part)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(part[key], dict | list) or not part[key] or data.draw(st.booleans()):
            break
        part = part[key]
    part[key] = data.draw(ANY_JSON)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tokenizer.json").write_text(json.dumps(values))
        try:
            read_tokenizer(folder, ROWS)
        except SourceError as error:
            lines = str(error).splitlines()
            assert len(lines) == 1, lines


def test_a_bos_that_no_file_names_is_asked_for(tmp_path: Path) -> None:
    source = folder_of("gpt2", tmp_path)
    edit(source / "tokenizer_config.json", lambda values: values.update(add_bos_token=True, bos_token=None))
    assert "Name it as bos_token" in refused(source, tmp_path / "out")
