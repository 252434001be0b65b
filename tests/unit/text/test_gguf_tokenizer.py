"""A tokenizer folder from the parts of a GGUF file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_tokenizers import BYTE, CONTROL, NORMAL, USER_DEFINED, with_tokens, written

from edge.errors import SourceError
from edge.text.tokenizer_config import read_config
from engines.sources.base import TokenizerParts
from engines.sources.gguf_tokenizer import write_tokenizer
from engines.sources.pre_tokenizers import PRE_TOKENIZERS

Change = Callable[[TokenizerParts], TokenizerParts]


def test_the_folder_holds_both_forms_and_the_template(byte_parts: TokenizerParts, tmp_path: Path) -> None:
    write_tokenizer(byte_parts, tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"tokenizer.json", "tables.bin", "tokenizer_config.json", "chat_template.jinja"}
    assert (tmp_path / "chat_template.jinja").read_text(encoding="utf-8") == byte_parts.chat_template


def test_a_base_model_gets_no_template(piece_parts: TokenizerParts, tmp_path: Path) -> None:
    write_tokenizer(piece_parts, tmp_path)
    assert not (tmp_path / "chat_template.jinja").exists()
    assert read_config(tmp_path).chat_template is None


def test_every_known_end_that_is_a_control_token_ends_an_answer(byte_parts: TokenizerParts, tmp_path: Path) -> None:
    parts = with_tokens(byte_parts, ("<end_of_turn>", CONTROL, 0.0), ("</s>", USER_DEFINED, 0.0), ("<odd>", CONTROL, 0.0))
    odd = parts.tokens.index("<odd>")
    write_tokenizer(replace(parts, ids={**parts.ids, "eot": odd}), tmp_path)
    ends = [parts.tokens[token_id] for token_id in read_config(tmp_path).eos_token_ids]
    assert sorted(ends) == ["<end_of_turn>", "<odd>", "<|endoftext|>", "<|im_end|>"]


@pytest.mark.parametrize("vocabulary", ["byte_parts", "piece_parts"])
def test_tokens_of_undefined_type_are_taken_as_normal(vocabulary: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    parts: TokenizerParts = request.getfixturevalue(vocabulary)
    undefined = replace(parts, types=tuple(0 if kind == NORMAL else kind for kind in parts.types))
    normal, other = written(parts, tmp_path / "normal"), written(undefined, tmp_path / "undefined")
    ids = normal.encode("Hello the world <|im_end|>", specials=True)
    assert other.encode("Hello the world <|im_end|>", specials=True) == ids
    assert other.decode(ids) == normal.decode(ids)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "undefined" / name).read_bytes() == (tmp_path / "normal" / name).read_bytes()


def test_sentencepiece_defaults_hold_where_the_file_says_nothing(piece_parts: TokenizerParts, tmp_path: Path) -> None:
    write_tokenizer(replace(piece_parts, ids={}, flags={}), tmp_path)
    config = read_config(tmp_path)
    assert (config.bos_token_id, config.add_bos, config.space_prefix) == (1, True, "sections")
    assert 2 in config.eos_token_ids


@pytest.mark.parametrize(
    ("kind", "change", "named"),
    [
        ("byte", lambda p: replace(p, tokens=()), "tokenizer.ggml.tokens is missing"),
        ("byte", lambda p: replace(p, merges=()), "tokenizer.ggml.merges is missing"),
        ("byte", lambda p: replace(p, types=()), "tokenizer.ggml.token_type is missing"),
        ("piece", lambda p: replace(p, scores=()), "tokenizer.ggml.scores is missing"),
        ("byte", lambda p: replace(p, types=p.types[1:]), "tokenizer.ggml.token_type has"),
        ("piece", lambda p: replace(p, scores=p.scores[1:]), "tokenizer.ggml.scores has"),
        ("piece", lambda p: replace(p, scores=(float("nan"), *p.scores[1:])), "tokenizer.ggml.scores holds"),
        ("byte", lambda p: replace(p, model="t5"), "tokenizer.ggml.model is 't5'; gpt2, llama"),
        ("byte", lambda p: replace(p, pre="smolm"), "tokenizer.ggml.pre is 'smolm'"),
        ("byte", lambda p: replace(p, ids={**p.ids, "eos": 10**6}), "tokenizer.ggml.eos_token_id is 1000000"),
        ("byte", lambda p: replace(p, ids={}, flags={"add_bos": True}), "tokenizer.ggml.bos_token_id is missing"),
        ("byte", lambda p: replace(p, merges=("nope t", *p.merges)), "needs 'nope', which is no token"),
        ("byte", lambda p: replace(p, merges=("x", *p.merges)), "needs '', which is no token"),
        ("byte", lambda p: replace(p, tokens=(*p.tokens[:-1], p.tokens[3])), "tokenizer.ggml.tokens: 3 and"),
        ("byte", lambda p: replace(p, types=(*p.types[:-1], 9)), "of type 9"),
        ("byte", lambda p: replace(p, types=(*p.types[:-1], BYTE)), "of type 6"),
        ("piece", lambda p: replace(p, tokens=tuple("?" + t if t == "<0x0A>" else t for t in p.tokens),
                                    types=tuple(NORMAL if t == BYTE else t for t in p.types)), "lacks 1 byte tokens, <0x0A>"),
    ],
)  # fmt: skip
def test_what_is_missing_or_disagrees_is_named(
    kind: str, change: Change, named: str, byte_parts: TokenizerParts, piece_parts: TokenizerParts, tmp_path: Path
) -> None:
    parts = change(byte_parts if kind == "byte" else piece_parts)
    with pytest.raises(SourceError) as caught:
        write_tokenizer(parts, tmp_path, "m.gguf")
    assert named in str(caught.value)
    assert str(caught.value).startswith("m.gguf: ")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_an_unknown_pre_tokenizer_names_the_known_ones(byte_parts: TokenizerParts, tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        write_tokenizer(replace(byte_parts, pre="nope"), tmp_path)
    assert all(name in str(caught.value) for name in PRE_TOKENIZERS)


def test_no_merge_ends_in_a_control_token(piece_parts: TokenizerParts, tmp_path: Path) -> None:
    """llama.cpp lets text become one when its two halves are tokens; here text stays text."""
    parts = with_tokens(piece_parts, ("<|", NORMAL, -1.0), ("|>", NORMAL, -2.0), ("<||>", CONTROL, 0.0), ("<", NORMAL, -9.0),
                        ("|", NORMAL, -9.0), (">", NORMAL, -9.0))  # fmt: skip
    tokenizer = written(parts, tmp_path)
    control = parts.tokens.index("<||>")
    assert [parts.tokens[i] for i in tokenizer.encode("<||>", specials=False)] == ["<|", "|>"]
    assert tokenizer.encode("<||>", specials=True) == [control]


def test_equal_scores_merge_from_the_left(piece_parts: TokenizerParts, tmp_path: Path) -> None:
    tokens = (("z", NORMAL, -9.0), ("zz", NORMAL, -1.0), ("zzz", NORMAL, -1.0))
    parts = with_tokens(piece_parts, *((text, kind, score) for text, kind, score in tokens if text not in piece_parts.tokens))
    tokenizer = written(parts, tmp_path)
    # zz at the left, which merges with the next z before the pair behind it: all have one rank.
    assert [parts.tokens[i] for i in tokenizer.encode("zzzzz", specials=False)] == ["zzz", "zz"]
    assert [parts.tokens[i] for i in tokenizer.encode("zzz", specials=False)] == ["zzz"]


def test_a_letter_that_is_no_token_alone_still_merges(piece_parts: TokenizerParts, tmp_path: Path) -> None:
    parts = with_tokens(piece_parts, ("ßa", NORMAL, -1.0))
    tokenizer = written(parts, tmp_path)
    assert [parts.tokens[i] for i in tokenizer.encode("ßaß", specials=False)] == ["ßa", "<0xC3>", "<0x9F>"]


def test_the_json_form_gives_the_same_ids(byte_parts: TokenizerParts, piece_parts: TokenizerParts, tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Library

    texts = ["Hello, the world of <|im_end|> and <end_of_turn>\n\n 123", "", " a  b ", "你好 é \x00 😊", "<bos>the<eos>"]
    for name, parts in (("byte", byte_parts), ("piece", piece_parts)):
        tokenizer = written(parts, tmp_path / name)
        library = Library.from_file(str(tmp_path / name / "tokenizer.json"))
        for text in texts:
            for specials in (False, True):
                library.encode_special_tokens = not specials
                found = library.encode(text, add_special_tokens=False).ids
                assert tokenizer.encode(text, specials=specials) == found, (name, text)
            assert tokenizer.encode_prompt(text) == library.encode(text).ids or "<" in text, (name, text)


def test_the_json_form_is_plain_json_with_sorted_merges(piece_parts: TokenizerParts, tmp_path: Path) -> None:
    write_tokenizer(piece_parts, tmp_path)
    model = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    scores = [piece_parts.scores[model["vocab"][left + right]] for left, right in model["merges"]]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) > 40


@pytest.mark.parametrize(("token", "fact"), [("\ud800", "a lone surrogate"), ("x" * 5000, "has 5,000 characters")])
def test_a_token_that_no_vocabulary_has_is_refused(piece_parts: TokenizerParts, tmp_path: Path, token: str, fact: str) -> None:
    with pytest.raises(SourceError, match=fact):
        write_tokenizer(with_tokens(piece_parts, (token, NORMAL, -1.0)), tmp_path)
