"""A package folder: what is checked before anything is loaded."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge import contract
from edge.errors import PackageError
from edge.manifest import FORMAT_VERSION
from edge.package import Package
from edge.progress import SilentProgress
from edge.text.tables import TokenTables, write_tables
from edge.text.tokenizer_config import TokenizerConfig, write_config

FILES = {
    "engine/plan.json": b"{}",
    "engine/weights.bin": bytes(range(256)) * 64,
    "tokenizer/tables.bin": b"{}",
    "tokenizer/tokenizer_config.json": b"{}",
}
LIMITS = {"kl_mean": 0.01, "top1": 0.95, "perplexity_ratio": 1.01}
VERDICT = {"kl_mean": 0.5, "top1": 0.5, "perplexity_ratio": 3.0, "tokens": 9, "limits": LIMITS, "passed": False, "text": "t",
           "windows": 1, "window_tokens": 9}  # fmt: skip
PASSED = VERDICT | {"kl_mean": 0.001, "top1": 0.99, "perplexity_ratio": 1.001, "passed": True}


def manifest_of() -> dict[str, Any]:
    layer, rope = {"window": 0, "rope": 0}, {"dim": 32, "base": 10000.0, "divisors": [], "q_scale": 1.0}
    spec = {"name": "tiny", "architecture": "llama", "vocab_size": 64, "hidden_size": 64, "intermediate_size": 64,
            "num_heads": 2, "num_kv_heads": 1, "head_dim": 32, "layers": [layer], "ropes": [rope], "context_length": 128,
            "norm_epsilon": 1e-5, "activation": "silu", "attention_scale": 0.2, "embedding_scale": 1.0, "qk_norm": False,
            "post_norms": False, "tied_head": True, "attention_soft_cap": 0.0, "logit_soft_cap": 0.0,
            "qkv_bias": False}  # fmt: skip
    return {
        "format_version": FORMAT_VERSION,
        "contract_version": contract.VERSION,
        "spec": spec,
        "tier": "int4",
        "requantised": False,
        "context": None,
        "target": "cpu",
        "seal_tokens": 128,
        "limits": {"max_context": 128, "max_step_tokens": 256, "max_sequences": 4, "max_logit_rows": 4},
        "capabilities": {"presets": ["exact"], "prefixes": False, "batch_invariant": True},
        "libraries": {},
        "source": {"name": "tiny.gguf", "sha256": "0" * 64, "licence": "unknown"},
        "files": {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in FILES.items()},
        "bits_per_weight": 5.0,
        "tensors": [],
        "verdicts": {"engine": PASSED, "graph": None, "tier": PASSED},
        "preset_verdicts": {},
        "reference": [],
        "engine": None,
    }


def write(folder: Path, change: Callable[[dict[str, Any]], Any] = lambda manifest: None) -> Path:
    for name, data in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    manifest = manifest_of()
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def refusal(folder: Path) -> str:
    with pytest.raises(PackageError) as caught:
        Package.open(folder)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_good_package_opens_and_its_files_are_found(tmp_path: Path) -> None:
    package = Package.open(write(tmp_path / "Rifé two words.edge"))
    assert package.spec.name == "tiny" and package.file("engine/weights.bin").read_bytes() == FILES["engine/weights.bin"]
    package.verify_hashes(SilentProgress())


def test_a_relative_path_stays_valid_when_the_folder_of_work_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.edge")
    monkeypatch.chdir(tmp_path)
    package = Package.open(Path("a.edge"))
    monkeypatch.chdir("/")
    assert package.file("engine/plan.json").exists()


def test_a_read_only_folder_is_enough(tmp_path: Path) -> None:
    folder = write(tmp_path / "a.edge")
    before = sorted(tmp_path.rglob("*"))
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    Package.open(folder).verify_hashes(SilentProgress())
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_that_is_linked_to_opens(tmp_path: Path) -> None:
    write(tmp_path / "real.edge")
    (tmp_path / "link.edge").symlink_to(tmp_path / "real.edge")
    Package.open(tmp_path / "link.edge").verify_hashes(SilentProgress())


def test_what_is_no_package_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    assert "no such folder" in refusal(tmp_path / "nothing")
    assert "not a package but a file" in refusal(tmp_path / "file")
    assert "no manifest.json in it" in refusal(tmp_path / "empty")
    (tmp_path / "empty" / "manifest.json").write_bytes(b"\xff\xfe")
    assert "not UTF-8" in refusal(tmp_path / "empty")


def test_a_file_of_another_size_is_refused_with_both_sizes(tmp_path: Path) -> None:
    folder = write(tmp_path)
    with (folder / "engine/weights.bin").open("ab") as file:
        file.write(b"x")
    assert (
        "weights.bin: 16385 bytes, the manifest says 16384. Copy the package again, or rebuild: edge build tiny.gguf"
        in refusal(folder)
    )


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (folder / "tokenizer/tables.bin").unlink()
    assert "tables.bin: No such file" in refusal(folder)


def test_a_manifest_without_a_needed_file_is_refused(tmp_path: Path) -> None:
    assert "names no engine/weights.bin" in refusal(write(tmp_path, lambda m: m["files"].pop("engine/weights.bin")))


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "a.edge")
    outside = tmp_path / "outside.bin"
    (folder / "engine/weights.bin").rename(outside)
    (folder / "engine/weights.bin").symlink_to(outside)
    assert "leads out of the package" in refusal(folder)


def test_a_link_inside_the_folder_is_fine(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (folder / "engine/weights.bin").rename(folder / "engine/real.bin")
    (folder / "engine/weights.bin").symlink_to("real.bin")
    Package.open(folder)


def test_a_link_to_itself_and_a_folder_in_place_of_a_file_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path)
    plan = folder / "engine/plan.json"
    plan.unlink()
    plan.symlink_to("plan.json")
    assert "plan.json: " in refusal(folder)
    plan.unlink()
    plan.mkdir()
    assert "plan.json: not a file" in refusal(folder)


def test_an_unknown_target_is_refused_with_those_there_are(tmp_path: Path) -> None:
    message = refusal(write(tmp_path, lambda m: m.update(target="orin-max-128")))
    assert "built for 'orin-max-128', this version knows: a10, " in message
    assert message.endswith("Rebuild for one: edge build tiny.gguf --tier int4 --target TARGET")


def test_an_engine_that_its_target_cannot_run_is_damage(tmp_path: Path) -> None:
    message = refusal(write(tmp_path, lambda m: m.update(target="orin-nx-16")))
    assert "manifest.json: holds a cpu engine, orin-nx-16 runs: tensorrt. Copy the package again, or rebuild: " in message


def test_another_contract_is_refused_with_both_versions(tmp_path: Path) -> None:
    assert f"contract 9, this runtime has {contract.VERSION}" in refusal(
        write(tmp_path, lambda m: m.update(contract_version=9))
    )


@pytest.mark.parametrize(
    ("figures", "says"),
    [
        ({"kl_mean": 0.5}, "KL 0.5 of at most 0.01"),
        ({"top1": 0.5}, "top-1 0.5 of at least 0.95"),
        ({"perplexity_ratio": 3.0}, "perplexity x3 of at most x1.01"),
        ({"kl_mean": 0.5, "perplexity_ratio": 3.0}, "KL 0.5 of at most 0.01, perplexity x3 of at most x1.01"),
    ],
)
def test_a_failed_verdict_is_refused_with_the_figures_that_fail_unless_forced(
    tmp_path: Path, figures: dict[str, float], says: str
) -> None:
    folder = write(tmp_path, lambda m: m["verdicts"].update(tier=PASSED | figures | {"passed": False}))
    message = refusal(folder)
    assert f"the tier verdict failed ({says})" in message and "--ignore-verdict" in message
    Package.open(folder, force=True)


def test_a_verdict_that_its_own_figures_deny_is_damage(tmp_path: Path) -> None:
    assert "passed: True is not what" in refusal(
        write(tmp_path, lambda m: m["verdicts"].update(tier=VERDICT | {"passed": True}))
    )


@pytest.mark.parametrize("name", ["engine", "tier"])
def test_a_missing_verdict_is_refused_unless_forced(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path, lambda m: m["verdicts"].update({name: None}))
    assert f"has no {name} verdict" in refusal(folder)
    Package.open(folder, force=True)


@pytest.mark.parametrize("name", ["engine/plan.json", "tokenizer/tables.bin", "tokenizer/tokenizer_config.json",
                                  "tokenizer/chat_template.jinja"])  # fmt: skip
def test_a_changed_byte_in_what_is_read_as_it_is_is_found_at_once(tmp_path: Path, name: str) -> None:
    template = b"{{ messages }}"
    record = {"bytes": len(template), "sha256": hashlib.sha256(template).hexdigest()}
    folder = write(tmp_path, lambda m: m["files"].update({"tokenizer/chat_template.jinja": record}))
    (folder / "tokenizer/chat_template.jinja").write_bytes(template)
    Package.open(folder)
    data = bytearray((folder / name).read_bytes())
    data[1] ^= 1
    (folder / name).write_bytes(data)
    assert re.search(rf"{name}: SHA-256 is .* the manifest says .* edge build tiny.gguf", refusal(folder))


def test_a_vocabulary_of_another_model_is_refused_with_both_sizes(tmp_path: Path) -> None:
    none = [[]] * 3
    tables = TokenTables([1, 2, 3], [1] * 3, *none, [], [], [], memoryview(b"abc"))
    config = TokenizerConfig("bytes", (), False, None, "none", False, (), (), 3, None, (), None, None, False, None)
    (tmp_path / "tokenizer").mkdir()
    write_tables(tmp_path / "tokenizer/tables.bin", tables)
    write_config(tmp_path / "tokenizer", config)
    written = {name: (tmp_path / name).read_bytes() for name in ("tokenizer/tables.bin", "tokenizer/tokenizer_config.json")}
    records = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in written.items()}
    for vocabulary, is_right in ((3, True), (64, False)):
        folder = write(tmp_path, lambda m: (m["files"].update(records), m["spec"].update(vocab_size=vocabulary)))  # noqa: B023
        for name, data in written.items():
            (folder / name).write_bytes(data)
        package = Package.open(folder)
        if is_right:
            assert package.open_tokenizer().vocab_size == 3
        else:
            with pytest.raises(PackageError, match=r"tables.bin: has 3 tokens, the model 64\. .* edge build tiny.gguf"):
                package.open_tokenizer()


def test_a_changed_byte_is_found_by_the_hashes(tmp_path: Path) -> None:
    folder = write(tmp_path)
    package = Package.open(folder)
    data = bytearray(FILES["engine/weights.bin"])
    data[5000] ^= 1
    (folder / "engine/weights.bin").write_bytes(data)
    with pytest.raises(PackageError, match=r"weights.bin: SHA-256 is .* the manifest says .* edge build tiny.gguf"):
        package.verify_hashes(SilentProgress())


def test_checking_hashes_reports_every_byte(tmp_path: Path) -> None:
    class Counting(SilentProgress):
        total = seen = 0

        def start(self, task: str, total: int, unit: str) -> None:
            self.total = total

        def advance(self, n: int = 1) -> None:
            self.seen += n

    progress = Counting()
    Package.open(write(tmp_path)).verify_hashes(progress)
    assert progress.seen == progress.total == sum(len(data) for data in FILES.values())


@pytest.mark.skipif(os.geteuid() == 0, reason="needs a user who is not root: root reads everything")
def test_a_manifest_that_may_not_be_read_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (folder / "manifest.json").chmod(0)
    assert "Permission denied" in refusal(folder)
