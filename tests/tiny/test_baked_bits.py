"""Baked pages on a real engine: whoever begins with them gets the bits of who computed everything, in each preset, with windows
too, and nothing is copied."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import GEMMA, LLAMA, TinyModel

pytest.importorskip("edge._core", reason="needs the native core: pip install .")
pytest.importorskip("onnxruntime", reason="needs the build extra")

from built_package import build_tiny
from vocabulary import CHATML

from edge.anchors.zones import ANCHOR
from edge.baked.bake import BakeRequest, bake_prefix
from edge.baked.folder import open_baked
from edge.baked.prefix import BakedPrefix
from edge.baked.sections import plan_cuts
from edge.config import InferenceConfig
from edge.errors import PackageError
from edge.kv_budget import KvChoice, kv_pool
from edge.opening import open_package
from edge.package import Package
from edge.presets import PRESETS, PresetName
from edge.progress import SilentProgress
from edge.runtime import Runtime
from edge.sampling import SamplingParams
from edge.text.opening import find_opening
from edge.text.template import ChatTemplate

CONTEXT = 1536
ASKED = SamplingParams(logprobs=True)
MODELS = {
    "llama": replace(LLAMA, head_dim=32, context=2048, type="Q4_1"),
    "gemma": replace(GEMMA, head_dim=64, heads=2, window=200, context=2048, type="Q8_0", chat_template=CHATML),
}
DOCUMENT = "".join(
    f"# Part {n}\n\n" + "the world is in the hand of an other and the rest is here. " * 6 + "\n\n" for n in range(6)
)
Answer = list[tuple[int | None, float | None]]


@pytest.fixture(scope="module")
def package_of(tiny_gguf: Callable[[TinyModel], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Package]:
    made: dict[str, Package] = {}

    def package(model: str) -> Package:
        if model not in made:
            out = tmp_path_factory.mktemp("bits") / f"{model}.edge"
            build_tiny(tiny_gguf(MODELS[model]), out, "int8")
            made[model] = Package.open(out, force=True)
        return made[model]

    return package


def bake(package: Package, preset: PresetName) -> BakedPrefix:
    tokenizer = package.open_tokenizer()
    opening = find_opening(tokenizer, ChatTemplate.open(package.path / "tokenizer", tokenizer), "", DOCUMENT)
    request = BakeRequest(preset, opening, plan_cuts(opening, 3), replaces=True)
    with open_package(package, context=CONTEXT, preset=preset) as runtime:
        baked = bake_prefix(package, runtime, request, SilentProgress())
        runtime.check()
    return baked


def ask(runtime: Runtime, prompt: list[int], count: int = 40) -> tuple[int, Answer]:
    """Tokens of the prompt that were there, and the answer."""
    request = runtime.submit(prompt, ASKED, count)
    events = [(event.token_id, event.logprob) for event in runtime.events(request)]
    runtime.check()
    return request.reused_tokens, events


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("model", MODELS)
def test_what_begins_with_baked_pages_gets_the_same_bits(
    package_of: Callable[[str], Package], model: str, preset: PresetName
) -> None:
    package = package_of(model)
    baked = bake(package, preset)
    question = package.open_tokenizer().encode("What is the world? " * 20, specials=False)
    prompts = {cut.tokens: [*baked.token_ids[: cut.tokens], *question[: 100 + cut.tokens % 128]] for cut in baked.header.cuts}
    prompts[0] = question
    expected = {}
    for tokens, prompt in prompts.items():
        with open_package(package, context=CONTEXT, preset=preset) as alone:
            expected[tokens] = ask(alone, prompt)[1]
    with open_package(package, context=CONTEXT, preset=preset, prefixes=[baked]) as runtime:
        for tokens, prompt in prompts.items():
            assert ask(runtime, prompt) == (tokens, expected[tokens]), tokens
        assert runtime.stats.bytes_copied == 0
        assert 0 < runtime.stats.pool.baked_bytes <= baked.header.extent_bytes


def test_several_sequences_share_the_pages_of_several_prefixes(package_of: Callable[[str], Package]) -> None:
    package = package_of("gemma")
    first, second = bake(package, "safe"), bake(package, "exact")
    with pytest.raises(PackageError, match="baked with the preset exact, this is safe"):
        second.check_engine(package.manifest, "safe")
    question = package.open_tokenizer().encode("What is the world?", specials=False)
    prompts = [[*first.token_ids, *question[:length]] for length in (1, 3, 9)]
    expected = []
    for prompt in prompts:
        with open_package(package, context=CONTEXT, preset="safe") as alone:
            expected.append(ask(alone, prompt)[1])
    with open_package(package, context=CONTEXT, preset="safe", max_sequences=3, prefixes=[first]) as runtime:
        requests = [runtime.submit(prompt, ASKED, 40) for prompt in prompts]
        came: dict[int, Answer] = {request.id: [] for request in requests}
        while runtime.has_work:
            for event in runtime.step():
                came[event.request_id].append((event.token_id, event.logprob))
            runtime.check()
        assert [came[request.id] for request in requests] == expected
        assert all(request.reused_tokens == first.header.tokens for request in requests)
        assert runtime.stats.preemptions == 0


@pytest.mark.parametrize("preset", ["exact", "balanced"])
def test_who_gives_way_begins_with_the_baked_pages_again(package_of: Callable[[str], Package], preset: PresetName) -> None:
    """In a pool that holds no prefix, so that computing it anew would never fit."""
    package = package_of("llama")
    baked = bake(package, preset)
    question = package.open_tokenizer().encode("What is the world? " * 9, specials=False)
    prompts = [[*baked.token_ids, *question[: 20 + 30 * number]] for number in range(3)]
    with open_package(package, context=CONTEXT, preset=preset, prefixes=[baked]) as alone:
        expected = [ask(alone, prompt, 280)[1] for prompt in prompts]
    longest = max(map(len, prompts)) + 279
    own = kv_pool(package.spec, KvChoice(preset, None, baked.header.tokens), longest, 1, InferenceConfig.load()).pool_bytes
    assert own < baked.header.extent_bytes
    config = replace(InferenceConfig.load(), deterministic=True)
    with open_package(
        package, context=CONTEXT, preset=preset, max_sequences=3, prefixes=[baked], pool_bytes=own, config=config
    ) as runtime:
        requests = [runtime.submit(prompt, ASKED, 280) for prompt in prompts]
        came: dict[int, Answer] = {request.id: [] for request in requests}
        while runtime.has_work:
            for event in runtime.step():
                assert event.error is None
                came[event.request_id].append((event.token_id, event.logprob))
            runtime.check()
        assert [came[request.id] for request in requests] == expected
        assert runtime.stats.preemptions > 0, "the pool was meant to be too small"


@pytest.mark.parametrize("model", MODELS)
def test_in_a_full_pool_pages_are_demoted_but_for_those_of_a_file(package_of: Callable[[str], Package], model: str) -> None:
    package = package_of(model)
    baked = bake(package, "safe")
    longest = baked.header.tokens + 360
    sizes = KvChoice("safe", None, baked.header.tokens, "anchors")
    own = kv_pool(package.spec, sizes, longest, 1, InferenceConfig.load()).pool_bytes
    content = baked.path.read_bytes()
    prompts = [[*baked.token_ids, 5 + number] for number in range(2)]
    with open_package(
        package, context=CONTEXT, preset="safe", policy="anchors", max_sequences=3, prefixes=[baked], pool_bytes=own
    ) as runtime:
        zones = bytes([ANCHOR]) * 10
        requests = [runtime.submit(prompt, ASKED, 340, zones=zones) for prompt in prompts]
        while runtime.has_work:
            assert all(event.error is None for event in runtime.step())
            runtime.check()
        assert [len(request.token_ids) for request in requests] == [340, 340]
        assert all(request.reused_tokens == baked.header.tokens for request in requests), "its pages are none to be raised"
        assert runtime.stats.pages_demoted > 0, "the pool was meant to be too small"
    assert baked.path.read_bytes() == content


def test_a_request_is_refused_where_the_file_is_another(package_of: Callable[[str], Package]) -> None:
    package = package_of("llama")
    baked = bake(package, "balanced")
    with open_package(package, context=CONTEXT, preset="balanced", prefixes=[baked]) as runtime:
        ask(runtime, baked.token_ids, 2)
        bake(package, "balanced")
        with pytest.raises(PackageError, match="was replaced while it was in use"):
            runtime.submit(baked.token_ids, ASKED, 2)
        assert not runtime.has_work
    with pytest.raises(PackageError, match="was replaced while it was being opened"):
        open_package(package, context=CONTEXT, preset="balanced", prefixes=[baked])
    again = open_baked(package.path, "balanced")
    with open_package(package, context=CONTEXT, preset="balanced", prefixes=[again]) as runtime:
        ask(runtime, again.token_ids, 2)


def test_a_request_fails_where_the_file_lost_its_end_under_it(package_of: Callable[[str], Package]) -> None:
    """Inside the last page of the system, where what is gone reads as zeros and nothing ends the process."""
    package = package_of("llama")
    baked = bake(package, "balanced")
    prompts = [[*baked.token_ids, 5, 6], baked.token_ids[20:60]]
    with open_package(package, context=CONTEXT, preset="balanced", max_sequences=2, prefixes=[baked]) as runtime:
        requests = [runtime.submit(prompt, ASKED, 9) for prompt in prompts]
        events = runtime.step()
        os.truncate(baked.path, baked.header.file_bytes - 100)
        while runtime.has_work:
            events += runtime.step()
        runtime.check()
        assert [request.finish_reason for request in requests] == ["error", "length"], "the other one reads nothing of it"
        (error,) = [event.error for event in events if event.error is not None]
        assert isinstance(error, PackageError) and "when it was opened" in str(error)


@pytest.mark.parametrize("way", ["replaced", "removed"])
def test_a_request_goes_on_with_the_file_that_it_began_with(package_of: Callable[[str], Package], way: str) -> None:
    """What is mapped stays mapped; the next request is refused."""
    package = package_of("llama")
    baked = bake(package, "balanced")
    with open_package(package, context=CONTEXT, preset="balanced", prefixes=[baked]) as runtime:
        _, expected = ask(runtime, [*baked.token_ids, 5, 6], 9)
        request = runtime.submit([*baked.token_ids, 5, 6], ASKED, 9)
        runtime.step()
        if way == "replaced":
            bake(package, "balanced")
        else:
            baked.path.unlink()
        while runtime.has_work:
            runtime.step()
        assert request.finish_reason == "length" and request.token_ids == [token for token, _ in expected]
        with pytest.raises(PackageError, match="while it was in use"):
            runtime.submit(baked.token_ids, ASKED, 2)
