"""A decoder's forward pass in plain NumPy, as the model papers write it. Owns: the arithmetic that every engine is compared
with, and the places at which an engine rounds. Needs: weights by canonical name, a spec. Never: speed, a KV cache, files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edge.spec import LayerSpec, ModelSpec, RopeSpec

Weights = Callable[[str], np.ndarray]  # canonical name -> float32 [N] or [N outputs, K inputs]
Times = Callable[[np.ndarray, str], np.ndarray]  # (x [T, K], name of W) -> x W^T [T, N], its input rounded


@dataclass(frozen=True, slots=True)
class Roundings:
    """What an engine rounds between float32 operations."""

    inputs: Callable[[str, np.ndarray], np.ndarray]  # (weight, what it is multiplied with [T, K]) -> the same, rounded
    kept: Callable[[np.ndarray], np.ndarray]  # K or V [T, heads, D] as attention reads it


EXACT = Roundings(lambda name, x: x, lambda x: x)


def forward(
    weights: Weights, spec: ModelSpec, ids: Sequence[int], rows: Sequence[int], roundings: Roundings = EXACT
) -> np.ndarray:
    """Logits float32 [rows, vocabulary] after the tokens at positions `rows` of the sequence `ids`, which starts at 0."""

    def times(x: np.ndarray, name: str) -> np.ndarray:
        return roundings.inputs(name, x) @ weights(name).T

    embedding = weights("embed.weight")
    h = embedding[np.asarray(ids)] * np.float32(spec.embedding_scale)  # [T, hidden]
    for index, layer in enumerate(spec.layers):
        prefix = f"layers.{index}."
        x = _rms_norm(h, weights(prefix + "attn_norm.weight"), spec.norm_epsilon)
        x = _attention(weights, times, roundings, spec, layer, prefix, x)
        if spec.post_norms:
            x = _rms_norm(x, weights(prefix + "attn_post_norm.weight"), spec.norm_epsilon)
        h = h + x
        x = _rms_norm(h, weights(prefix + "ffn_norm.weight"), spec.norm_epsilon)
        x = _feed_forward(times, spec, prefix, x)
        if spec.post_norms:
            x = _rms_norm(x, weights(prefix + "ffn_post_norm.weight"), spec.norm_epsilon)
        h = h + x
    h = _rms_norm(h[np.asarray(rows)], weights("final_norm.weight"), spec.norm_epsilon)
    return _soft_cap(times(h, "embed.weight" if spec.tied_head else "head.weight"), spec.logit_soft_cap)


def _attention(
    weights: Weights, times: Times, roundings: Roundings, spec: ModelSpec, layer: LayerSpec, prefix: str, x: np.ndarray
) -> np.ndarray:
    """Causal attention of one layer, [T, hidden] -> [T, hidden]."""
    tokens = len(x)
    q, k, v = (times(x, f"{prefix}attn.{role}_proj.weight") for role in "qkv")
    if spec.qkv_bias:
        q, k, v = (part + weights(f"{prefix}attn.{role}_proj.bias") for part, role in zip((q, k, v), "qkv", strict=True))
    q = q.reshape(tokens, spec.num_heads, spec.head_dim)
    k, v = (part.reshape(tokens, spec.num_kv_heads, spec.head_dim) for part in (k, v))
    if spec.qk_norm:
        q = _rms_norm(q, weights(prefix + "attn.q_norm.weight"), spec.norm_epsilon)
        k = _rms_norm(k, weights(prefix + "attn.k_norm.weight"), spec.norm_epsilon)
    q, k = (_rotate(part, spec.ropes[layer.rope]) for part in (q, k))
    k, v = roundings.kept(k), roundings.kept(v)
    behind = np.arange(tokens)[:, None] - np.arange(tokens)  # how far behind the query (row) a key (column) is
    seen = (behind >= 0) & (behind < (layer.window or tokens))
    out = np.empty((tokens, spec.num_heads, spec.head_dim), np.float32)
    for head in range(spec.num_heads):
        kv_head = head // (spec.num_heads // spec.num_kv_heads)
        scores = _soft_cap(q[:, head] @ k[:, kv_head].T * np.float32(spec.attention_scale), spec.attention_soft_cap)
        scores = np.where(seen, scores, -np.inf)
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        out[:, head] = shares / shares.sum(axis=-1, keepdims=True) @ v[:, kv_head]
    return times(out.reshape(tokens, -1), prefix + "attn.o_proj.weight")


def _feed_forward(times: Times, spec: ModelSpec, prefix: str, x: np.ndarray) -> np.ndarray:
    gate = ACTIVATIONS[spec.activation](times(x, prefix + "ffn.gate_proj.weight"))
    return times(gate * times(x, prefix + "ffn.up_proj.weight"), prefix + "ffn.down_proj.weight")


def _rms_norm(x: np.ndarray, weight: np.ndarray, epsilon: float) -> np.ndarray:
    mean = np.mean(np.square(x), axis=-1, keepdims=True)
    return x / np.sqrt(mean + np.float32(epsilon)) * weight


def _rotate(x: np.ndarray, rope: RopeSpec) -> np.ndarray:
    """Rotary positions on [T, heads, D], half-rotation form: channel i turns together with channel i + D / 2, if it does."""
    half, turned = x.shape[-1] // 2, rope.dim // 2
    turns = np.zeros(half)  # a position
    for pair in range(turned):
        turns[pair] = rope.base ** (-pair / turned) / (rope.divisors[pair] if rope.divisors else 1.0)
    angles = np.arange(len(x))[:, None, None] * turns  # [T, 1, D / 2]
    cosines, sines = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    first, second = x[..., :half], x[..., half:]
    return np.concatenate((first * cosines - second * sines, second * cosines + first * sines), axis=-1)


def _soft_cap(x: np.ndarray, cap: float) -> np.ndarray:
    return np.float32(cap) * np.tanh(x / np.float32(cap)) if cap else x


def _silu(x: np.ndarray) -> np.ndarray:
    return x * (np.float32(0.5) * (1 + np.tanh(x * np.float32(0.5))))  # x * sigmoid(x), without an overflow


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    inner = np.float32((2 / np.pi) ** 0.5) * (x + np.float32(0.044715) * x**3)
    return np.float32(0.5) * x * (1 + np.tanh(inner))


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"silu": _silu, "gelu_tanh": _gelu_tanh}
