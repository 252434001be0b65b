"""Token ids of the real models against those of llama.cpp (tests/fixtures/make_tokens.py made them)."""

from __future__ import annotations

import json
import threading
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gguf", reason="needs the build extra: gguf")

from edge.monitors.memory import process_memory
from edge.text.template import ChatTemplate, render_chat
from edge.text.tokenizer import Tokenizer
from engines.sources.base import TokenizerParts, open_source
from engines.sources.gguf_tokenizer import write_tokenizer
from engines.sources.pre_tokenizers import PRE_TOKENIZERS

FIXTURES = Path(__file__).parents[1] / "fixtures"
NAMES = ("smollm2", "gemma3")
DISTINCT = {value: name for name, value in PRE_TOKENIZERS.items()}  # one name for each that differs


@pytest.fixture(scope="module")
def folders(smollm2_gguf: Path, gemma3_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {}
    for name, model in (("smollm2", smollm2_gguf), ("gemma3", gemma3_gguf)):
        found[name] = tmp_path_factory.mktemp(name)
        write_tokenizer(open_source(model).metadata.tokenizer, found[name], str(model))
    return found


@pytest.fixture(scope="module")
def tokenizers(folders: dict[str, Path]) -> dict[str, Tokenizer]:
    return {name: Tokenizer.open(folder) for name, folder in folders.items()}


@pytest.fixture(scope="module")
def smollm2_parts(smollm2_gguf: Path) -> TokenizerParts:
    return open_source(smollm2_gguf).metadata.tokenizer


def oracle(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FIXTURES / f"tokens_{name}.json").read_text(encoding="ascii"))
    return found


def differences(name: str, tokenizer: Tokenizer) -> Iterator[tuple[str, bool]]:
    for case in oracle(name)["cases"]:
        for specials, key in ((False, "plain"), (True, "specials")):
            if tokenizer.encode(case["text"], specials=specials) != case[key]:
                yield case["text"], specials


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_those_of_llama_cpp(name: str, tokenizers: dict[str, Tokenizer]) -> None:
    assert len(oracle(name)["cases"]) > 30
    assert not list(differences(name, tokenizers[name]))


def test_every_name_of_a_pre_tokenizer_has_a_fixture() -> None:
    assert oracle("smollm2")["pre"].keys() == PRE_TOKENIZERS.keys()
    for name, ids in oracle("smollm2")["pre"].items():
        assert ids == oracle("smollm2")["pre"][DISTINCT[PRE_TOKENIZERS[name]]]


@pytest.mark.parametrize("pre", DISTINCT.values())
def test_every_pre_tokenizer_cuts_as_llama_cpp_does(pre: str, smollm2_parts: TokenizerParts, tmp_path: Path) -> None:
    found = oracle("smollm2")
    write_tokenizer(replace(smollm2_parts, pre=pre), tmp_path)
    text = unicodedata.normalize("NFC", "\n".join(case["text"] for case in found["cases"]))
    assert Tokenizer.open(tmp_path).encode(text, specials=False) == found["pre"][pre]


@pytest.mark.parametrize("name", NAMES)
def test_text_comes_back_and_streams_as_it_decodes(name: str, tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers[name]
    for case in oracle(name)["cases"]:
        stream = tokenizer.stream(specials=True)
        text = "".join([*map(stream.push, case["plain"]), stream.finish()])
        assert text == tokenizer.decode(case["plain"], specials=True)
        if name == "gemma3" and "\u2581" not in case["text"]:  # SmolLM2 lacks 21 bytes; there U+2581 means a space
            assert text == case["text"]


@pytest.mark.parametrize("name", NAMES)
def test_both_forms_of_a_tokenizer_agree(name: str, folders: dict[str, Path], tokenizers: dict[str, Tokenizer]) -> None:
    from tokenizers import Tokenizer as Library

    library = Library.from_file(str(folders[name] / "tokenizer.json"))
    for case in oracle(name)["cases"]:
        for specials in (False, True):
            library.encode_special_tokens = not specials
            found = library.encode(case["text"], add_special_tokens=False).ids
            assert tokenizers[name].encode(case["text"], specials=specials) == found, case["text"]


def test_the_ends_of_an_answer_are_all_known(tokenizers: dict[str, Tokenizer]) -> None:
    ends = {name: {tokenizer.token_text(i) for i in tokenizer.eos_ids} for name, tokenizer in tokenizers.items()}
    assert ends == {"smollm2": {"<|im_end|>", "<|endoftext|>"}, "gemma3": {"<eos>", "<end_of_turn>"}}


def test_a_prompt_of_gemma_begins_with_one_bos(tokenizers: dict[str, Tokenizer]) -> None:
    assert tokenizers["gemma3"].encode_prompt("<bos>Hi").count(2) == 1
    assert 1 not in tokenizers["smollm2"].encode_prompt("Hi")


def test_smollm2_renders_its_template(folders: dict[str, Path], tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["smollm2"]
    chat = render_chat(ChatTemplate.open(folders["smollm2"], tokenizer), [{"role": "user", "content": "Hi <|im_end|>"}])
    assert chat.text.endswith("<|im_start|>user\nHi <|im_end|><|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer.encode_chat(chat).count(2) == 2


def test_opening_the_largest_vocabulary_takes_hardly_any_memory(folders: dict[str, Path]) -> None:
    before = process_memory().anonymous
    opened = [Tokenizer.open(folders["gemma3"]) for _ in range(3)]
    for tokenizer in opened:
        tokenizer.encode("Hello", specials=False)
    after = process_memory().anonymous
    assert before is not None and after is not None
    assert after - before < 16 << 20, "the tokenizers library takes 300 MB for one"


def test_sixteen_threads_share_the_real_vocabularies(folders: dict[str, Path]) -> None:
    for name in NAMES:
        tokenizer, cases, wrong = Tokenizer.open(folders[name]), oracle(name)["cases"], []

        def work(tokenizer: Tokenizer = tokenizer, cases: list[Any] = cases, wrong: list[str] = wrong) -> None:
            wrong.extend(case["text"] for case in cases if tokenizer.encode(case["text"], specials=True) != case["specials"])

        threads = [threading.Thread(target=work) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
