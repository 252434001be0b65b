"""The NumPy forward pass does what its spec says, part by part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from edge.spec import LayerSpec, ModelSpec, RopeSpec
from engines.reference.numpy_forward import Roundings, Weights, forward

HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 16, 24, 4, 2, 8, 20
SPEC = ModelSpec(
    name="toy", architecture="llama", vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=FFN, num_heads=HEADS,
    num_kv_heads=KV_HEADS, head_dim=HEAD_DIM, layers=(LayerSpec(0, 0),) * 2,
    ropes=(RopeSpec(HEAD_DIM, 1e4, ()),), context_length=64,
    norm_epsilon=1e-5, activation="silu", attention_scale=HEAD_DIM**-0.5, embedding_scale=1.0, qk_norm=False,
    post_norms=False, tied_head=True,
)  # fmt: skip
IDS = np.random.default_rng(7).integers(0, VOCAB, 12)
LAST = [len(IDS) - 1]


def random_weights(seed: int = 0) -> Weights:
    shapes = {
        "q_proj": (HEADS * HEAD_DIM, HIDDEN), "k_proj": (KV_HEADS * HEAD_DIM, HIDDEN), "v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
        "o_proj": (HIDDEN, HEADS * HEAD_DIM), "gate_proj": (FFN, HIDDEN), "up_proj": (FFN, HIDDEN), "down_proj": (HIDDEN, FFN),
        "q_norm": (HEAD_DIM,), "k_norm": (HEAD_DIM,), "embed": (VOCAB, HIDDEN), "head": (VOCAB, HIDDEN),
    }  # fmt: skip
    known: dict[str, np.ndarray] = {}

    def read(name: str) -> np.ndarray:
        if name not in known:
            shape = shapes.get(name.split(".")[-2], (HIDDEN,))
            rng = np.random.default_rng([seed, *name.encode()])
            known[name] = (rng.standard_normal(shape) * 0.4 + (len(shape) == 1)).astype(np.float32)
        return known[name]

    return read


def logits(spec: ModelSpec, ids: np.ndarray = IDS, rows: list[int] | None = None) -> np.ndarray:
    return forward(random_weights(), spec, ids, LAST if rows is None else rows)


def test_a_row_depends_only_on_the_tokens_up_to_it() -> None:
    changed = IDS.copy()
    changed[8:] = (changed[8:] + 1) % VOCAB
    np.testing.assert_allclose(logits(SPEC, changed, [7]), logits(SPEC, IDS, [7]), atol=1e-5)
    np.testing.assert_allclose(logits(SPEC, IDS[:8], [7]), logits(SPEC, IDS, [7]), atol=1e-5)


def test_a_window_hides_what_lies_behind_it() -> None:
    windowed = replace(SPEC, layers=(LayerSpec(4, 0),))
    changed = IDS.copy()
    changed[: len(IDS) - 4] = (changed[: len(IDS) - 4] + 1) % VOCAB  # the last row sees itself and three before it
    np.testing.assert_allclose(logits(windowed, changed), logits(windowed), atol=1e-5)
    changed[len(IDS) - 4] = (changed[len(IDS) - 4] + 1) % VOCAB
    assert np.abs(logits(windowed, changed) - logits(windowed)).max() > 1e-2


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: replace(spec, qk_norm=True),
        lambda spec: replace(spec, post_norms=True),
        lambda spec: replace(spec, tied_head=False),
        lambda spec: replace(spec, activation="gelu_tanh"),
        lambda spec: replace(spec, attention_soft_cap=0.5),
        lambda spec: replace(spec, logit_soft_cap=0.5),
        lambda spec: replace(spec, embedding_scale=4.0),
        lambda spec: replace(spec, attention_scale=1.0),
        lambda spec: replace(spec, ropes=(RopeSpec(HEAD_DIM, 1e6, ()),)),
    ],
)
def test_every_field_of_the_spec_counts(change: Callable[[ModelSpec], ModelSpec]) -> None:
    assert np.abs(logits(change(SPEC)) - logits(SPEC)).max() > 1e-3


def test_every_product_and_all_k_and_v_can_be_rounded() -> None:
    spec, products, kept = replace(SPEC, tied_head=False), [], []

    def inputs(name: str, x: np.ndarray) -> np.ndarray:
        products.append(name)
        return x

    def pages(x: np.ndarray) -> np.ndarray:
        kept.append(x.shape)
        return x

    found = forward(random_weights(), spec, IDS, LAST, Roundings(inputs, pages))
    assert np.array_equal(found, logits(spec))
    roles = ["attn.q", "attn.k", "attn.v", "attn.o", "ffn.gate", "ffn.up", "ffn.down"]
    layers = [f"layers.{layer}.{role}_proj.weight" for layer in range(2) for role in roles]
    assert products == [*layers, "head.weight"]
    assert kept == [(len(IDS), KV_HEADS, HEAD_DIM)] * 4
    for coarse in (Roundings(lambda name, x: x.round(1), lambda x: x), Roundings(lambda name, x: x, lambda x: x.round(1))):
        assert np.abs(forward(random_weights(), spec, IDS, LAST, coarse) - found).max() > 1e-2


def test_logits_stay_within_their_cap() -> None:
    assert np.abs(logits(replace(SPEC, logit_soft_cap=0.5))).max() <= 0.5
