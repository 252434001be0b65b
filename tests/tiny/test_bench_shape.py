"""`edge bench shape` as a user types it."""

from __future__ import annotations

from pathlib import Path

import pytest
from edge_process import Edge

pytestmark = [pytest.mark.native]

TINY = """title: Tiny
source: made up
vocab_size: 300
hidden_size: 64
intermediate_size: 96
num_heads: 4
num_kv_heads: 2
head_dim: 16
num_layers: 3
context_length: 256
window: 32
full_every: 3
qkv_bias: true
"""
LOAD = ("--prompt", "40", "--decode", "4", "--threads", "1")


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return path


def test_a_shape_is_measured_and_nothing_of_it_stays(edge: Edge, tiny: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    row = edge.json("bench", "shape", tiny, *LOAD, TMPDIR=str(scratch))
    assert (row["shape"], row["tier"], row["prompt_tokens"], row["decode_tokens"]) == ("tiny", "int4", 40, 4)
    assert row["share_of_decode_limit"] is None or row["share_of_decode_limit"] > 0  # None: a busy machine
    assert row["logits_sha256"] == edge.json("bench", "shape", tiny, *LOAD, "--rounds", "2")["logits_sha256"]
    assert list(scratch.iterdir()) == []
    assert "limit" in edge.succeed("bench", "shape", tiny, *LOAD)


def test_without_a_name_the_shapes_are_listed(edge: Edge) -> None:
    assert "Llama 3.2 1B" in edge.succeed("bench", "shape")
    assert {"llama-3.2-1b", "gemma-3-1b", "smollm2-135m"} <= {row["name"] for row in edge.json("bench", "shape")}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["llama-3.2-1c"], "shapes: no 'llama-3.2-1c'. Did you mean 'llama-3.2-1b'?"),
        (["{tiny}", "--prompt", "300"], "--prompt 300 and --decode 64 are 364 tokens, the engine takes 256"),
        (["{giant}", "--prompt", "40", "--decode", "4"], "giant.yaml: needs 1.1 TB at a context of 108, "),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_drawn(
    edge: Edge, tiny: Path, tmp_path: Path, words: list[str], says: str
) -> None:
    giant = tmp_path / "giant.yaml"
    giant.write_text(TINY.replace("vocab_size: 300\nhidden_size: 64", "vocab_size: 16000000\nhidden_size: 65536"))
    assert says in edge.refuse("bench", "shape", *(word.format(tiny=tiny, giant=giant) for word in words))
