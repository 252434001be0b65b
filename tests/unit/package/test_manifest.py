"""manifest.json: written, read back, and every way in which it can be wrong."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from edge import contract
from edge.errors import PackageError
from edge.manifest import (
    FORMAT_VERSION,
    Capabilities,
    FileRecord,
    Limits,
    Manifest,
    ReferencePrompt,
    SourceRecord,
    TensorReport,
    Verdict,
    VerdictLimits,
    Verdicts,
    from_json,
    to_json,
)
from edge.spec import LayerSpec, ModelSpec, RopeSpec

SPEC = ModelSpec(
    name="tiny café",
    architecture="llama",
    vocab_size=64,
    hidden_size=64,
    intermediate_size=128,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    layers=(LayerSpec(0, 0), LayerSpec(512, 1)),
    ropes=(RopeSpec(16, 10000.0, ()), RopeSpec(16, 1e6, (8.0,) * 8)),
    context_length=2048,
    norm_epsilon=1e-5,
    activation="silu",
    attention_scale=0.25,
    embedding_scale=1.0,
    qk_norm=False,
    post_norms=False,
    tied_head=True,
)
RECORD = {"bytes": 10, "sha256": "cd" * 32}
VERDICT = Verdict(0.001, 0.99, 1.002, 10_000, VerdictLimits(0.01, 0.95, 1.01), True, "wiki", 20, 512)
MANIFEST = Manifest(
    format_version=FORMAT_VERSION,
    contract_version=contract.VERSION,
    spec=SPEC,
    tier="int4",
    requantised=False,
    context=None,
    target="cpu",
    seal_tokens=128,
    limits=Limits(2048, 256, 8, 8),
    capabilities=Capabilities(("exact",), prefixes=False, batch_invariant=True),
    libraries={"onnx": "1.19.0"},
    source=SourceRecord("my models/tiny café.gguf", "ab" * 32, "apache-2.0"),
    files={"engine/plan.json": FileRecord(**RECORD)},
    bits_per_weight=5.0,
    tensors=(TensorReport("embed.weight", "Q8_0", "int8", 4096, 0.0, 0.0),),
    verdicts=Verdicts(engine=VERDICT, graph=None, tier=None),
    preset_verdicts={"safe": VERDICT},
    reference=(ReferencePrompt("hello", (1, 2, 63)),),
    engine=None,
)


def changed(change: Callable[[dict[str, Any]], Any]) -> str:
    plain = json.loads(to_json(MANIFEST))
    change(plain)
    return json.dumps(plain)


def failure(text: str) -> str:
    with pytest.raises(PackageError) as caught:
        from_json(text, "tiny.edge/manifest.json")
    message = str(caught.value)
    assert "\n" not in message and message.startswith("tiny.edge/manifest.json: ")
    return message.removeprefix("tiny.edge/manifest.json: ")


def test_a_manifest_reads_back_as_it_was_written() -> None:
    assert from_json(to_json(MANIFEST), "here") == MANIFEST


def test_numbers_that_are_not_numbers_are_not_written() -> None:
    with pytest.raises(ValueError):
        to_json(
            dataclasses.replace(
                MANIFEST, libraries={}, bits_per_weight=0.0, spec=dataclasses.replace(SPEC, norm_epsilon=float("nan"))
            )
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(colour="red"), "unknown key 'colour'"),
        (lambda m: m["limits"].update(max_tokens=1), "unknown key 'limits.max_tokens'"),
        (lambda m: m.pop("tier"), "missing key 'tier'"),
        (lambda m: m["spec"].pop("head_dim"), "missing key 'spec.head_dim'"),
        (lambda m: m["spec"].pop("logit_soft_cap"), "missing key 'spec.logit_soft_cap'"),
        (lambda m: m["verdicts"]["engine"].update(passed=1), "verdicts.engine.passed: expected true or false, found 1"),
        (lambda m: m["limits"].update(max_context="many"), 'limits.max_context: expected a whole number, found "many"'),
        (lambda m: m["limits"].update(max_context=True), "limits.max_context: expected a whole number, found true"),
        (lambda m: m["limits"].update(max_context=2.0), "limits.max_context: expected a whole number, found 2.0"),
        (lambda m: m["limits"].update(max_context=1 << 60), "limits: max_context: 1152921504606846976 is outside"),
        (lambda m: m["limits"].update(max_sequences=0), "limits: max_sequences: 0 is outside"),
        (lambda m: m["capabilities"].update(presets=[]), "capabilities: presets: not one name at least"),
        (lambda m: m["capabilities"].update(presets=["a\nb"]), "capabilities: presets: not one name at least"),
        (lambda m: m["capabilities"].update(presets=["exact", "bogus"]), "presets: bogus are not for heads of 16"),
        (lambda m: m["spec"]["layers"][1].update(window=-1), r"spec.layers\[1\].window: -1 is outside"),
        (lambda m: m["spec"]["layers"][1].update(window="x"), r'spec.layers\[1\].window: expected a whole number, found "x"'),
        (lambda m: m["spec"].update(layers=[]), "spec.layers: 0 is outside"),
        (lambda m: m["spec"].update(vocab_size=1 << 40), "spec.vocab_size: 1099511627776 is outside"),
        (lambda m: m["spec"].update(num_heads=3), "spec.num_heads: 3 is not a multiple of num_kv_heads 2"),
        (lambda m: m["files"].update({"../weights.bin": RECORD}), "'../weights.bin' is not a path inside"),
        (lambda m: m["files"].update({"/etc/passwd": RECORD}), "'/etc/passwd' is not a path inside"),
        (lambda m: m["files"].update({"a/./b": RECORD}), "'a/./b' is not a path inside"),
        (lambda m: m["files"].update({"c:\\b": RECORD}), "is not a path inside"),
        (lambda m: m["files"]["engine/plan.json"].update(bytes=-1), "files.engine/plan.json: bytes: -1 is outside"),
        (lambda m: m["files"]["engine/plan.json"].update(sha256="zz" * 32), "sha256: 'zzzz"),
        (lambda m: m.update(files=[]), r"files: expected keys and values, found \[\]"),
        (lambda m: m.update(reference=[{"name": "p", "token_ids": [64]}]), "prompt 'p' has token ids outside the vocabulary"),
        (lambda m: m["verdicts"]["engine"].update(top1=1.5), "top1: 1.5 is outside"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_key(change: Callable[[dict[str, Any]], Any], message: str) -> None:
    found = failure(changed(change))
    assert re.search(message, found), found
    assert " The package is damaged. Copy it again, or rebuild: edge build 'my models/tiny café.gguf' --tier " in found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: not JSON"),
        ("{", "line 1: not JSON"),
        ("[]", "expected keys and values"),
        ("null", "expected keys and values"),
        ('{"format_version": 1, "format_version": 1}', "key 'format_version' stands there twice"),
        ('{"format_version": NaN}', "NaN is not a number"),
        ('{"format_version": -Infinity}', "-Infinity is not a number"),
        ("[" * 100_000, "nested too deeply"),
        ("9" * 5000, "4300"),
        ("{}", "format_version: expected a whole number, found null"),
    ],
)
def test_text_that_is_no_manifest_is_refused(text: str, message: str) -> None:
    found = failure(text)
    assert message in found
    assert found.endswith(" The package is damaged. Copy it again, or rebuild: edge build MODEL --tier TIER --target TARGET")


@pytest.mark.parametrize(
    ("change", "command"),
    [
        (lambda m: m.update(requantised=True), "'my models/tiny café.gguf' --tier int4 --target cpu --requantise"),
        (lambda m: m.update(source=3), "MODEL --tier int4 --target cpu"),
        (lambda m: m["source"].update(name=None), "MODEL --tier int4 --target cpu"),
        (lambda m: m["source"].update(name="a\nb"), "MODEL --tier int4 --target cpu"),
        (lambda m: m.update(tier="x" * 100_000, target=""), "'my models/tiny café.gguf' --tier TIER --target TARGET"),
        (lambda m: m.update(target="$(reboot)"), "'my models/tiny café.gguf' --tier int4 --target '$(reboot)'"),
    ],
)
def test_the_command_that_mends_it_says_what_the_manifest_tells_on_one_line(
    change: Callable[[dict[str, Any]], Any], command: str
) -> None:
    assert failure(changed(lambda m: (change(m), m.pop("limits")))).endswith(f"or rebuild: edge build {command}")


def test_a_number_beyond_all_floats_is_refused() -> None:
    text = to_json(MANIFEST).replace('"bits_per_weight": 5.0', '"bits_per_weight": 1e999')
    assert failure(text).startswith("bits_per_weight: not a finite number")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("format_version", 1, "format 1, this runtime has 4"),
        ("contract_version", 7, f"contract 7, this runtime has {contract.VERSION}"),
        ("seal_tokens", 256, "seal borders of 256, this runtime has 128"),
    ],
)
def test_another_version_is_named_on_both_sides_with_the_command_that_mends_it(key: str, value: int, message: str) -> None:
    text = changed(lambda m: (m.update({key: value}), m.update(future={}), m.pop("limits")))
    assert failure(text) == f"{message}. Rebuild: edge build 'my models/tiny café.gguf' --tier int4 --target cpu"


def test_the_command_that_builds_again_says_what_was_asked() -> None:
    command = "edge build 'my models/tiny café.gguf' --tier int4 --target cpu"
    assert MANIFEST.build_command == command
    assert dataclasses.replace(MANIFEST, requantised=True).build_command == command + " --requantise"
    assert dataclasses.replace(MANIFEST, context=4096).build_command == command + " --ctx-size 4096"
