"""edge::PagedAttention in NumPy, over a pool of bytes. Owns: what engines/tensorrt/paged_attention.py says, as arithmetic.
Needs: onnx.reference. Never: sealed pages (every page is fp16)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edge import contract

POOLS: dict[int, np.ndarray] = {}  # "device address" -> bytes


@dataclass
class Pages:
    """A pool, and the page tables of its sequences. Extents are given out in order, group by group."""

    address: int
    extent_bytes: list[int]  # of each group
    next_free: int = 0
    words: dict[tuple[int, int, int], list[int]] = field(default_factory=dict)  # (group, sequence, page) -> K, V words

    def table(self, sequences: list[int], lengths: list[int]) -> np.ndarray:
        """int32 [groups, sequences, pages, 2] that holds `lengths` tokens of each; pages that are missing are made."""
        pages = max(-(-length // contract.PAGE_TOKENS) for length in lengths) + 1
        table = np.full((len(self.extent_bytes), len(sequences), pages, 2), contract.EMPTY, np.int32)
        for group, nbytes in enumerate(self.extent_bytes):
            for row, (sequence, length) in enumerate(zip(sequences, lengths, strict=True)):
                for page in range(-(-length // contract.PAGE_TOKENS)):
                    key = (group, sequence, page)
                    if key not in self.words:
                        self.words[key] = [self._take(nbytes), self._take(nbytes)]
                    table[group, row, page] = self.words[key]
        return table

    def _take(self, nbytes: int) -> int:
        word = contract.page_word(contract.PAGE_FORMATS["fp16"], self.next_free)
        self.next_free += -(-nbytes // contract.OFFSET_UNIT) * contract.OFFSET_UNIT
        return word


def paged_attention(
    qkv: np.ndarray,
    query_start: np.ndarray,
    kv_len: np.ndarray,
    page_table: np.ndarray,
    page_moves: np.ndarray,
    pool: np.ndarray,
    inv_freq: np.ndarray,
    q_norm: np.ndarray | None = None,
    k_norm: np.ndarray | None = None,
    **a: Any,
) -> np.ndarray:
    """One layer: its inputs in their order, its attributes by name."""
    heads, kv_heads, size = a["heads"], a["kv_heads"], a["head_dim"]
    parts = qkv.astype(np.float32).reshape(len(qkv), heads + 2 * kv_heads, size)
    query, key, value = parts[:, :heads], parts[:, heads : heads + kv_heads], parts[:, heads + kv_heads :]
    if q_norm is not None and k_norm is not None:
        query, key = _normed(query, q_norm, a["epsilon"]), _normed(key, k_norm, a["epsilon"])
    assert a["qk_norm"] == (q_norm is not None)
    buffer = POOLS[int(pool[0])]
    for group, _, source, target in page_moves.tolist():
        if group == a["group"]:
            shape = (a["group_layers"], kv_heads, size, contract.PAGE_TOKENS)
            _extent(buffer, target, shape)[a["group_layer"]] = _extent(buffer, source, shape)[a["group_layer"]]
    out = np.zeros((len(qkv), heads, size), np.float32)
    for row, length in enumerate(kv_len.tolist()):
        begin, end = int(query_start[row]), int(query_start[row + 1])
        positions = length - (end - begin) + np.arange(end - begin)
        new = _rotated(key[begin:end], positions, inv_freq), value[begin:end]
        keys, values = _appended(buffer, page_table[a["group"], row], a, length, positions, new)
        out[begin:end] = _attended(_rotated(query[begin:end], positions, inv_freq), keys, values, positions, a)
    return out.reshape(len(qkv), heads * size).astype(qkv.dtype)


def evaluator_op() -> Any:
    """paged_attention as an operator of onnx.reference."""
    from onnx.reference.op_run import OpRun

    class PagedAttention(OpRun):  # type: ignore[misc]
        op_domain = "edge"

        def _run(self, *inputs: np.ndarray, **attributes: Any) -> tuple[np.ndarray]:
            return (paged_attention(*inputs, **attributes),)

    return PagedAttention


def _appended(
    buffer: np.ndarray,
    table: np.ndarray,
    a: dict[str, Any],
    length: int,
    positions: np.ndarray,
    new: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Writes new keys and values to their pages; all of the sequence's [length, kv_heads, D] come back."""
    tokens, shape = contract.PAGE_TOKENS, (a["group_layers"], a["kv_heads"], a["head_dim"], contract.PAGE_TOKENS)
    keys, values = (np.zeros((length, a["kv_heads"], a["head_dim"]), np.float32) for _ in range(2))
    for page in range(-(-length // tokens)):
        k_page = _extent(buffer, int(table[page, 0]), shape)[a["group_layer"]]  # [Hkv, D, tokens]
        v_page = _extent(buffer, int(table[page, 1]), (*shape[:2], tokens, a["head_dim"]))[a["group_layer"]]
        for index, position in enumerate(positions.tolist()):
            if position // tokens == page:
                k_page[:, :, position % tokens] = new[0][index]
                v_page[:, position % tokens] = new[1][index]
        stop = min(length - page * tokens, tokens)
        keys[page * tokens : page * tokens + stop] = k_page[:, :, :stop].transpose(2, 0, 1)
        values[page * tokens : page * tokens + stop] = v_page[:, :stop].transpose(1, 0, 2)
    return keys, values


def _extent(buffer: np.ndarray, word: int, shape: tuple[int, ...]) -> np.ndarray:
    """The fp16 extent behind a page-table word, as a view."""
    assert word != contract.EMPTY and word >> contract.FORMAT_SHIFT == contract.PAGE_FORMATS["fp16"]
    offset = (word & contract.OFFSET_MASK) * contract.OFFSET_UNIT
    return buffer[offset : offset + 2 * int(np.prod(shape))].view(np.float16).reshape(shape)


def _normed(x: np.ndarray, weight: np.ndarray, epsilon: float) -> np.ndarray:
    return x / np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + np.float32(epsilon)) * weight.astype(np.float32)


def _rotated(x: np.ndarray, positions: np.ndarray, inv_freq: np.ndarray) -> np.ndarray:
    angles = (positions.astype(np.float32)[:, None] * inv_freq)[:, None]
    first, second = np.split(x, 2, axis=-1)
    cosines, sines = np.cos(angles), np.sin(angles)
    return np.concatenate((first * cosines - second * sines, second * cosines + first * sines), axis=-1)


def _attended(query: np.ndarray, keys: np.ndarray, values: np.ndarray, positions: np.ndarray, a: dict[str, Any]) -> np.ndarray:
    behind = positions[:, None] - np.arange(len(keys))
    seen = (behind >= 0) & (behind < (a["window"] or len(keys) + 1))
    out = np.empty(query.shape, np.float32)
    for head in range(a["heads"]):
        kv_head = head // (a["heads"] // a["kv_heads"])
        scores = query[:, head] @ keys[:, kv_head].T * np.float32(a["scale"])
        if a["soft_cap"]:
            scores = a["soft_cap"] * np.tanh(scores / a["soft_cap"])
        shares = np.where(seen, np.exp(scores - scores.max(axis=-1, keepdims=True)), 0)
        out[:, head] = shares / shares.sum(axis=-1, keepdims=True) @ values[:, kv_head]
    return out
