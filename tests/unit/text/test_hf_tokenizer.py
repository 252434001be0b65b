"""A tokenizer folder from the files of a Hugging Face folder."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_tokenizers import written

from edge.errors import SourceError
from edge.text.tables import UNUSED
from edge.text.tokenizer import Tokenizer
from edge.text.tokenizer_config import TokenizerConfig
from engines.sources.base import TokenizerFiles, TokenizerParts
from engines.sources.hf_tokenizer import read_tokenizer, write_folder_tokenizer

FIXTURES = Path(__file__).parents[2] / "fixtures" / "tokenizers"
PUBLIC = "Café déjà vu — 123 😊"
KEYS = ["type", "id", "content", "pattern", "Regex", "single", "SpecialToken", "Sequence", "special", "normalizers"]
ROWS = 640  # of the embedding: more than any fixture has tokens
Json = dict[str, Any]


def folder_of(family: str, folder: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / family, folder / family))


def edit(path: Path, change: Callable[[Json], Any]) -> None:
    values = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    change(values)
    path.write_text(json.dumps(values), encoding="utf-8")


def made(source: Path, out: Path, rows: int = ROWS) -> Tokenizer:
    out.mkdir()
    write_folder_tokenizer(TokenizerFiles(source, rows), out)
    return Tokenizer.open(out)


def refused(source: Path, out: Path, rows: int = ROWS) -> str:
    with pytest.raises(SourceError) as error:
        made(source, out, rows)
    message = str(error.value)
    assert message.startswith(str(source)) and "\n" not in message and ". " in message
    assert not list(out.iterdir())
    return message


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
