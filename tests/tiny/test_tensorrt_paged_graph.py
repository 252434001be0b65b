"""The graph for TensorRT 10.3 gives, with edge::PagedAttention in NumPy, the logits of the linear graph in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lowered_graphs import lower_tiny
from paged_reference import POOLS, Pages, evaluator_op

from edge import contract
from edge.spec import ModelSpec
from engines.reference.ort import OrtGraph

pytestmark = pytest.mark.build
onnx = pytest.importorskip("onnx", reason="needs the build extra: onnx")
pytest.importorskip("onnxruntime", reason="needs the build extra: onnxruntime (Python 3.11 or newer)")

NO_MOVES = np.full((1, 4), -1, np.int32)
TOLERANCE = 0.01  # of the largest logit: both are float16, one of them keeps more digits inside attention


class Paged:
    """A paged graph in the reference evaluator, with a pool of its own."""

    def __init__(self, path: Path, spec: ModelSpec, address: int) -> None:
        from onnx.reference import ReferenceEvaluator

        self.evaluator = ReferenceEvaluator(onnx.load(str(path)), new_ops=[evaluator_op()])
        token_bytes = 2 * spec.num_kv_heads * spec.head_dim * contract.PAGE_TOKENS
        self.pages = Pages(address, [len(layers) * token_bytes for layers in spec.groups])
        POOLS[address] = np.zeros(1 << 20, np.uint8)

    def step(
        self, new: dict[int, list[int]], lengths: dict[int, int], rows: list[int], moves: np.ndarray = NO_MOVES
    ) -> np.ndarray:
        """Logits [rows, V] of a step that appends `new` tokens to sequences which then have `lengths`."""
        feeds: dict[str, Any] = {
            "input_ids": np.array([token for tokens in new.values() for token in tokens], np.int64),
            "query_start": np.cumsum([0, *(len(tokens) for tokens in new.values())]).astype(np.int32),
            "kv_len": np.array([lengths[sequence] for sequence in new], np.int32),
            "page_table": self.pages.table(list(new), [lengths[sequence] for sequence in new]),
            "page_moves": moves,
            "pool": np.array([self.pages.address], np.int64),
            "logit_rows": np.array(rows, np.int64),
        }
        return np.asarray(self.evaluator.run(["logits"], feeds)[0], np.float32)


def some_ids(vocab_size: int, count: int) -> list[int]:
    return np.random.default_rng(count).integers(0, vocab_size, count).tolist()


@pytest.mark.parametrize(
    "name",
    [
        "llama_published", "llama_odd_widths", "gemma_published", "gemma_soft_caps",
        "family qwen2", "family phi3_partial", "family smollm3", "family gemma2",
    ],
)  # fmt: skip
@pytest.mark.parametrize("tier", ["int4", "fp16"])
def test_chunks_and_mixed_steps_match_the_linear_graph(
    tiny_gguf: Callable[..., Path], tmp_path: Path, name: str, tier: str
) -> None:
    model, lowered = lower_tiny(tiny_gguf(name), tier, tmp_path, ("tensorrt-10.15", "tensorrt-10.3"))
    linear, paged = lowered.graphs
    reference = OrtGraph.open(linear.path, model.spec, threads=1)
    first, second = some_ids(model.spec.vocab_size, 41), some_ids(model.spec.vocab_size, 9)
    wanted = [np.concatenate([rows.copy() for rows in reference.logits(ids)]) for ids in (first, second)]
    engine = Paged(paged.path, model.spec, address=4096)
    largest = np.abs(wanted[0]).max()

    # A prefill in two chunks, over a page border and behind every window.
    found = engine.step({0: first[:30]}, {0: 30}, list(range(30)))
    assert np.abs(found - wanted[0][:30]).max() < TOLERANCE * largest
    found = engine.step({0: first[30:39]}, {0: 39}, list(range(9)))
    assert np.abs(found - wanted[0][30:39]).max() < TOLERANCE * largest
    # One step decodes a token of the first sequence and prefills the second.
    found = engine.step({0: first[39:40], 1: second[:8]}, {0: 40, 1: 8}, [0, 8])
    assert np.abs(found - np.stack([wanted[0][39], wanted[1][7]])).max() < TOLERANCE * largest
    # The next decodes both, in another order.
    found = engine.step({1: second[8:], 0: first[40:]}, {0: 41, 1: 9}, [0, 1])
    assert np.abs(found - np.stack([wanted[1][8], wanted[0][40]])).max() < TOLERANCE * largest


def test_page_moves_are_done_before_a_step_reads(tiny_gguf: Callable[..., Path], tmp_path: Path) -> None:
    model, lowered = lower_tiny(tiny_gguf("gemma_published"), "fp16", tmp_path, ("tensorrt-10.3",))
    ids = some_ids(model.spec.vocab_size, 20)
    still, moved = (Paged(lowered.graphs[0].path, model.spec, address) for address in (8192, 12288))
    for engine in (still, moved):
        engine.step({0: ids[:19]}, {0: 19}, [18])
    moves = []
    for group, nbytes in enumerate(moved.pages.extent_bytes):
        words = moved.pages.words[group, 0, 0]
        for part, source in enumerate(words):
            words[part] = moved.pages._take(nbytes)
            moves.append([group, part, source, words[part]])
    expected = still.step({0: ids[19:]}, {0: 20}, [0])
    assert np.array_equal(moved.step({0: ids[19:]}, {0: 20}, [0], np.array(moves, np.int32)), expected)
    # Without the moves the new extents hold nothing.
    words = moved.pages.words[0, 0, 0]
    words[0] = moved.pages._take(moved.pages.extent_bytes[0])
    assert not np.array_equal(moved.step({0: ids[19:]}, {0: 20}, [0]), expected)
