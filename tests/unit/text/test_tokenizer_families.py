"""Ids of each family's pipeline against the `tokenizers` library, on the small vocabularies of tests/fixtures/tokenizers."""

from __future__ import annotations

import functools
import tempfile
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.text.tables import STRUCTURAL
from edge.text.tokenizer import Tokenizer
from engines.sources.base import TokenizerFiles
from engines.sources.hf_tokenizer import write_folder_tokenizer

FIXTURES = Path(__file__).parents[2] / "fixtures" / "tokenizers"
FAMILIES = ("gpt2", "smollm2", "qwen2", "llama3", "smollm3", "tekken", "phi4", "llama2", "mistral", "phi3", "gemma")
PUBLIC = "Café déjà vu — 123 😊"
TEXTS = (
    "", " ", "  ", "\n", "\n\n", "\n \n", "\t\t", "a", " a", "a ", "  a  b   c    d", PUBLIC, f" {PUBLIC} ",
    "I'm you'RE we've they'LL it'S don't 'twas rock'n'roll o'\u017f", "1 12 123 1234 12345 3.14 1,000,000 ½ ² ٣٤ Ⅷ",
    "你好，世界。 こんにちは 東京 안녕하세요", "สวัสดี नमस्ते ﷺ Ǆ ﬁ", "e\u0301 é \u1e9b\u0323 \u2126 \ufb01 \u212b",
    "\u2581a \u2581\u2581b\u2581",
    "😀😀👩‍👩‍👧‍👦🇩🇪🏳️‍🌈", "def f(x):\n    return x\n\n\n\n# end\r\n\r\nx", "\x00\x01\x1f\x7f\x80\x85\xa0\u2028\u3000\ufeff",
    "<s></s><unk><pad><bos><eos> <s> a</s>b", "<|im_start|>user\nhi<|im_end|>\n<|endoftext|>", "<0x0A><0x41>",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>", "[INST] hi [/INST]ok</s>[INST]",
    "<start_of_turn>user\nhi<end_of_turn>\n",
    "<|user|>\n  hi <|end|>\n\n<|assistant|>\u3000\x1c\n x", "<b>bold</b><think>\n</think>",
    "<tool_call>{}</tool_call>", "<|im_start|", "|im_end|>", "a<b>c", "HELLO World camelCase XMLHttp ÄÖÜß",
    "https://a.b/c?d=e&f=g#h",
)  # fmt: skip
ANY_TEXT = st.text(st.characters(exclude_categories=("Cs", "Cn")), max_size=30)
PARTS = st.sampled_from([text for text in TEXTS if text])
MIXED = st.lists(st.one_of(ANY_TEXT, PARTS, st.sampled_from([" ", "\n", "  ", "'s", "1", "\u2581"])), max_size=5).map("".join)


class Both:
    """One family's tokenizer, ours and the library's."""

    def __init__(self, family: str) -> None:
        from tokenizers import Tokenizer as Library

        source = FIXTURES / family
        self.defines_runs = family == "gemma"
        self.library: Any = Library.from_file(str(source / "tokenizer.json"))
        with tempfile.TemporaryDirectory() as folder:
            rows = self.library.get_vocab_size() + 3  # as where an embedding was padded
            self.config = write_folder_tokenizer(TokenizerFiles(source, rows), Path(folder))
            self.ours = Tokenizer.open(Path(folder))

    def prepared(self, text: str) -> str:
        """Without runs of U+2581 for a vocabulary that defines such runs: there they count as spaces, for the library as
        tokens of their own."""
        return text.replace("\u2581", " ") if self.defines_runs else text

    def library_ids(self, text: str, *, specials: bool) -> list[int]:
        self.library.encode_special_tokens = not specials
        return self.library.encode(text, add_special_tokens=False).ids


@functools.cache
def both(family: str) -> Both:
    return Both(family)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("specials", [False, True])
def test_ids_are_those_of_the_library(family: str, specials: bool) -> None:
    pair = both(family)
    for text in map(pair.prepared, TEXTS):
        assert pair.ours.encode(text, specials=specials) == pair.library_ids(text, specials=specials), text


@pytest.mark.parametrize("family", FAMILIES)
@given(text=MIXED, specials=st.booleans())
def test_places_of_tokens_are_those_of_the_library(family: str, text: str, specials: bool) -> None:
    """Of characters that are seen, and that stand alone: the library leaves spaces out of a token's span, and gives all of a
    cluster that NFC joined to its first token."""
    pair = both(family)
    text = pair.prepared(text)
    located = pair.ours.encode_located(text, specials=specials)
    assert located.ids == pair.ours.encode(text, specials=specials)
    pair.library.encode_special_tokens = not specials
    encoding = pair.library.encode(text, add_special_tokens=False)
    for place, char in enumerate(text):
        if char.isspace() or char == "\u2581" or unicodedata.normalize("NFC", text[place : place + 2])[:1] != char:
            continue
        token = encoding.char_to_token(place)
        if token is None or unicodedata.combining(char):
            continue
        if encoding.tokens[token] == "\u2581":  # the space in front, which the library lays on the first character
            token += 1
        assert located.tokens_at([place])[0] == token, (text, place)


@pytest.mark.parametrize("family", FAMILIES)
@given(text=MIXED, specials=st.booleans())
def test_ids_of_any_text_are_those_of_the_library(family: str, text: str, specials: bool) -> None:
    pair = both(family)
    text = pair.prepared(text)
    assert pair.ours.encode(text, specials=specials) == pair.library_ids(text, specials=specials)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_begins_as_the_library_begins_it(family: str) -> None:
    pair = both(family)
    pair.library.encode_special_tokens = True
    for text in map(pair.prepared, TEXTS):
        assert pair.ours.encode_prompt(text) == pair.library.encode(text).ids, text


@pytest.mark.parametrize("family", FAMILIES)
@given(text=MIXED)
def test_text_of_a_user_never_becomes_a_control_token(family: str, text: str) -> None:
    pair = both(family)
    tables = pair.ours._tables
    assert not any(tables.kinds[token] in STRUCTURAL for token in pair.ours.encode(text, specials=False))


@pytest.mark.parametrize("family", FAMILIES)
@given(text=MIXED)
def test_ids_decode_as_in_the_library(family: str, text: str) -> None:
    pair = both(family)
    ids = pair.ours.encode(text, specials=False)
    decoded = pair.ours.decode(ids)
    if family in ("llama2", "mistral", "phi3"):  # there the library takes a space from the front, one that a stream may need
        decoded = decoded.removeprefix(" ")
    assert decoded == pair.library.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize(
    ("family", "ends", "bos", "adds"),
    [
        ("gpt2", ["<|endoftext|>"], "<|endoftext|>", False),
        ("smollm2", ["<|im_end|>", "<|endoftext|>"], "<|im_start|>", False),
        ("qwen2", ["<|im_end|>", "<|endoftext|>"], None, False),
        ("llama3", ["<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"], "<|begin_of_text|>", True),
        ("smollm3", ["<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"], None, False),
        ("tekken", ["</s>"], "<s>", True),
        ("phi4", ["<|endoftext|>", "<|end|>"], "<|endoftext|>", False),
        ("mistral", ["</s>"], "<s>", True),
        ("phi3", ["<|endoftext|>", "<|end|>"], "<s>", False),
        ("gemma", ["<eos>", "<end_of_turn>"], "<bos>", True),
    ],
)
def test_a_family_begins_and_ends_by_its_tokens(family: str, ends: list[str], bos: str | None, adds: bool) -> None:
    config, ours = both(family).config, both(family).ours
    assert [ours.token_text(place) for place in config.eos_token_ids] == ends
    assert (config.bos_token_id if bos is None else ours.token_text(config.bos_token_id or 0)) == bos
    assert config.add_bos == adds
