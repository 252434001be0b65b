"""Text to ids and back, on small vocabularies."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_tokenizers import CONTROL, NORMAL, USER_DEFINED, with_tokens, written

from edge.errors import PackageError, RequestError
from edge.text.merging import merge_symbols
from edge.text.tokenizer import CACHED_PIECES, Tokenizer
from edge.text.tokenizer_config import read_config, write_config
from engines.sources.base import TokenizerParts

ANY_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)


@given(text=ANY_TEXT, specials=st.booleans())
def test_bytes_come_back_as_they_went_in(bytes_tokenizer: Tokenizer, text: str, specials: bool) -> None:
    assert bytes_tokenizer.decode(bytes_tokenizer.encode(text, specials=specials), specials=True) == text


@given(text=ANY_TEXT.map(lambda text: text.replace("\u2581", "_")))
def test_pieces_come_back_as_they_went_in(piece_tokenizer: Tokenizer, text: str) -> None:
    assert piece_tokenizer.decode(piece_tokenizer.encode(text, specials=False)) == text


@given(text=st.text("theworld ,.!?anioé你\u2581😊", max_size=60))
def test_cutting_at_spaces_changes_no_id(piece_tokenizer: Tokenizer, text: str) -> None:
    tables = piece_tokenizer._tables
    symbols = [tables.symbol(ord(char)) for char in text.replace(" ", "\u2581")]
    whole = merge_symbols(tables, [-1 if symbol is None else symbol for symbol in symbols])
    wanted = [token for token, _, _ in whole if token != -1]
    found = piece_tokenizer.encode(text, specials=False)
    assert [token for token in found if tables.kinds[token] != 6] == wanted


def test_a_space_inside_a_token_prevents_the_cut_there(piece_parts: TokenizerParts, tmp_path: Path) -> None:
    parts = with_tokens(piece_parts, ("e▁t", NORMAL, 1.0), ("e▁", NORMAL, 1.0))
    tokenizer = written(parts, tmp_path)
    assert tokenizer.config.space_follows == "e"
    assert "e▁t" in [parts.tokens[i] for i in tokenizer.encode("he told", specials=False)]


def test_a_vocabulary_that_joins_words_freely_is_not_cut(piece_parts: TokenizerParts, tmp_path: Path) -> None:
    parts = with_tokens(piece_parts, *((f"{chr(code)}▁x", NORMAL, -50.0) for code in range(0x3B1, 0x3B1 + 80)))
    tokenizer = written(parts, tmp_path)
    assert tokenizer.config.space_follows is None
    assert tokenizer.decode(tokenizer.encode("α x the world", specials=False)) == "α x the world"


def test_control_tokens_are_text_unless_asked_for(bytes_tokenizer: Tokenizer) -> None:
    plain = bytes_tokenizer.encode("a<|im_end|>b", specials=False)
    assert not set(plain) & {0, 1, 2}
    assert bytes_tokenizer.decode(plain) == "a<|im_end|>b"
    asked = bytes_tokenizer.encode("a<|im_end|>b", specials=True)
    assert asked.count(2) == 1
    assert bytes_tokenizer.decode(asked) == "ab"
    assert bytes_tokenizer.decode(asked, specials=True) == "a<|im_end|>b"


def test_tokens_defined_for_users_match_in_any_text(byte_parts: TokenizerParts, tmp_path: Path) -> None:
    spaces = (("  ", USER_DEFINED, 0.0), ("    ", USER_DEFINED, 0.0))
    parts = with_tokens(byte_parts, *spaces, ("<b>", USER_DEFINED, 0.0), ("<bb>", CONTROL, 0.0))
    tokenizer = written(parts, tmp_path)
    found = [parts.tokens[i] for i in tokenizer.encode("x       <b><bb>", specials=False)]
    assert found == ["x", "    ", "  ", "Ġ", "<b>", "<", "b", "b", ">"]
    assert [parts.tokens[i] for i in tokenizer.encode("<b><bb><b", specials=True)] == ["<b>", "<bb>", "<", "b"]


def test_bos_comes_exactly_once(piece_tokenizer: Tokenizer, bytes_tokenizer: Tokenizer) -> None:
    assert piece_tokenizer.encode_prompt("the").count(2) == 1
    assert piece_tokenizer.encode_prompt("")[0] == 2
    assert piece_tokenizer.frame([2, 2, 7]) == [2, 7]
    assert piece_tokenizer.encode_prompt("<bos>the").count(2) == 1, "the text of BOS in a prompt is text"
    assert 1 not in bytes_tokenizer.encode_prompt("the"), "this model wants none"


def test_a_space_goes_in_front_where_the_model_wants_one(piece_parts: TokenizerParts, tmp_path: Path) -> None:
    parts = replace(piece_parts, flags={**piece_parts.flags, "add_space_prefix": True})
    tokenizer = written(parts, tmp_path)
    assert [parts.tokens[i] for i in tokenizer.encode("the", specials=False)] == ["▁the"]
    after = tokenizer.encode("the<end_of_turn>the", specials=True)
    assert [parts.tokens[i] for i in after] == ["▁the", "<end_of_turn>", "▁the"]


def test_a_whole_piece_is_taken_where_the_model_does_so(byte_parts: TokenizerParts, tmp_path: Path) -> None:
    parts = with_tokens(byte_parts, ("xyz", NORMAL, 0.0))
    merging = written(parts, tmp_path / "smollm")
    taking = written(replace(parts, pre="llama-bpe"), tmp_path / "llama")
    assert len(merging.encode("xyz", specials=False)) == 3
    assert taking.encode("xyz", specials=False) == [len(parts.tokens) - 1]


def test_a_byte_without_a_token_is_dropped(byte_parts: TokenizerParts, tmp_path: Path) -> None:
    place = byte_parts.tokens.index("ÿ")
    parts = replace(byte_parts, tokens=tuple(t for i, t in enumerate(byte_parts.tokens) if i != place),
                    types=byte_parts.types[:-1])  # fmt: skip
    assert len(written(parts, tmp_path)._tables.symbol_codes) == 255


@pytest.mark.parametrize("token_id", [-1, 10**6, 2**40])
def test_an_id_outside_the_vocabulary_is_refused(bytes_tokenizer: Tokenizer, token_id: int) -> None:
    with pytest.raises(RequestError, match=str(token_id)):
        bytes_tokenizer.decode([5, token_id])
    with pytest.raises(RequestError):
        bytes_tokenizer.stream().push(token_id)


def test_a_lone_surrogate_is_refused(bytes_tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError, match="U\\+D83D"):
        bytes_tokenizer.encode("a\ud83d", specials=False)


@given(ids=st.lists(st.integers(0, 290), max_size=30))
def test_streamed_text_equals_decoded_text(bytes_tokenizer: Tokenizer, ids: list[int]) -> None:
    stream = bytes_tokenizer.stream()
    assert "".join([*map(stream.push, ids), stream.finish()]) == bytes_tokenizer.decode(ids)


def test_a_leading_space_is_never_lost(piece_tokenizer: Tokenizer) -> None:
    stream = piece_tokenizer.stream()
    assert stream.push(piece_tokenizer.encode(" the", specials=False)[0]) == " the"


def test_half_a_character_is_never_shown(bytes_tokenizer: Tokenizer) -> None:
    stream = bytes_tokenizer.stream()
    deltas = [stream.push(token) for token in bytes_tokenizer.encode("日😊", specials=False)]
    assert deltas == ["", "", "日", "", "", "", "😊"]


def test_threads_share_one_tokenizer(bytes_tokenizer: Tokenizer, byte_folder: Path) -> None:
    texts = [f"Hello the world {n} <|im_end|> 你好 {'x' * n}" for n in range(200)]
    wanted = [bytes_tokenizer.encode(text, specials=n % 2 == 0) for n, text in enumerate(texts)]
    fresh = Tokenizer.open(byte_folder)
    failures: list[object] = []
    barrier = threading.Barrier(16)

    def work() -> None:
        try:
            barrier.wait()
            for n, text in enumerate(texts):
                ids = fresh.encode(text, specials=n % 2 == 0)
                if ids != wanted[n] or fresh.decode(ids, specials=True) != text:
                    failures.append(text)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_the_cache_of_words_is_bounded(piece_tokenizer: Tokenizer) -> None:
    for n in range(CACHED_PIECES + 10):
        piece_tokenizer.encode(f"w{n}", specials=False)
    assert len(piece_tokenizer._cache) <= CACHED_PIECES
    piece_tokenizer.encode("y" * 1000, specials=False)
    assert not any(len(piece) > 100 for piece in piece_tokenizer._cache)


def test_text_that_must_be_too_long_is_refused_before_it_is_tokenised(bytes_tokenizer: Tokenizer) -> None:
    longest = max(len(bytes_tokenizer.token_bytes(token, specials=True)) for token in range(bytes_tokenizer.vocab_size))
    most = 100 * longest
    bytes_tokenizer.check_length(most, 100)
    with pytest.raises(RequestError, match=f"{most + 1:,} bytes, at least 101 tokens, the context 100"):
        bytes_tokenizer.check_length(most + 1, 100)


@given(text=ANY_TEXT, specials=st.booleans())
def test_no_text_is_refused_whose_tokens_fit(bytes_tokenizer: Tokenizer, text: str, specials: bool) -> None:
    bytes_tokenizer.check_length(len(text.encode("utf-8")), len(bytes_tokenizer.encode(text, specials=specials)))


def test_it_works_where_the_locale_is_not_utf8(byte_folder: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from edge.text.tokenizer import Tokenizer\n"
        "t = Tokenizer.open(Path(sys.argv[1])); assert t.decode(t.encode('\\u65e5 \\xe9', specials=False)) == '\\u65e5 \\xe9'"
    )
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", code, str(byte_folder)], check=True, env=environment, timeout=60)


def with_split(folder: Path, target: Path, split: str) -> Tokenizer:
    copied = Path(shutil.copytree(folder, target))
    write_config(copied, replace(read_config(copied), split=(split,)))
    return Tokenizer.open(copied)


def test_an_expression_that_is_none_is_named(byte_folder: Path, tmp_path: Path) -> None:
    tokenizer = with_split(byte_folder, tmp_path / "t", "(")
    with pytest.raises(PackageError, match=r"split: Oniguruma error: .*edge build"):
        tokenizer.encode("x", specials=False)


def test_text_that_an_expression_never_ends_with_is_refused(byte_folder: Path, tmp_path: Path) -> None:
    tokenizer = with_split(byte_folder, tmp_path / "t", "(a|aa)+$")
    with pytest.raises(RequestError, match=r"cannot cut this text .*retry-limit"):
        tokenizer.encode("a" * 200 + "b", specials=False)
