"""Where the tensors of a model lie in a file. Owns: canonical names, Place, FileForm. Needs: a spec. Never: files.

embed.weight; layers.N. attn_norm.weight, attn.{q,k,v}_proj.{weight,bias}, attn.{q,k}_norm.weight, attn.o_proj.weight,
attn_post_norm.weight, ffn_norm.weight, ffn.{gate,up,down}_proj.weight, ffn_post_norm.weight; final_norm.weight; head.weight
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from calibration.schemes import QuantTensor
from edge.spec import ModelSpec

Shape = tuple[int, ...]
_TURNED = ("q_proj", "k_proj", "q_norm", "k_norm")  # their rows stand in the order in which rotary turns them


@dataclass(frozen=True, slots=True)
class Place:
    """Where a canonical tensor is found: rows of a tensor of the file, in an order of their own inside each head."""

    file_name: str
    file_shape: Shape  # of the file's tensor
    shape: Shape  # of ours
    first_row: int  # ours begins at this row of the file's, where several of ours are stacked in it
    head_rows: tuple[int, ...]  # row j of a head of ours is row head_rows[j] of the file's head; (): as in the file
    head_factors: tuple[float, ...]  # by which row j of a head of ours is multiplied; (): by nothing
    added: float  # to each value

    def file_rows(self, begin: int, end: int) -> slice | np.ndarray:
        """The rows (items of a vector) of the file's tensor that are rows [begin, end) of ours: a slice, or int64 indices."""
        if not self.head_rows:
            return slice(self.first_row + begin, self.first_row + end)
        head, inside = np.divmod(np.arange(begin, end), len(self.head_rows))
        rows: np.ndarray = self.first_row + head * len(self.head_rows) + np.array(self.head_rows)[inside]
        return rows

    def finish(self, values: np.ndarray | QuantTensor, begin: int) -> np.ndarray | QuantTensor:
        """Rows from `begin` on, as read, with their factors and what is added. Float values become float32 where there are
        any; the scales of quants stay fp16, so that factors are rounded in them."""
        if self.added:
            assert isinstance(values, np.ndarray)
            values = values.astype(np.float32) + np.float32(self.added)
        if not self.head_factors:
            return values
        factors = np.array(self.head_factors, np.float32)[np.arange(begin, begin + values.shape[0]) % len(self.head_factors)]
        if isinstance(values, np.ndarray):
            return values.astype(np.float32) * factors.reshape(-1, *(1,) * (values.ndim - 1))
        scales = (values.scales.astype(np.float32) * factors[:, None]).astype(np.float16)
        minima = None if values.minima is None else (values.minima.astype(np.float32) * factors[:, None]).astype(np.float16)
        return replace(values, scales=scales, minima=minima)


@dataclass(frozen=True, slots=True)
class FileForm:
    """How one kind of file keeps the tensors of an architecture."""

    names: Mapping[str, str]  # canonical, with "layers." for "layers.N." -> of the file, {} the layer; one for several: stacked
    interleaved: bool = False  # the two halves of a q or k head alternate, so that neighbours turn together
    norm_added: float = 0.0  # to norm weights: 1.0 where the file holds what a norm adds to 1


def plan_places(spec: ModelSpec, form: FileForm) -> dict[str, Place]:
    """Canonical name -> place, in model order."""
    shapes = tensor_shapes(spec)
    names = {name: _file_name(name, form) for name in shapes}
    first: dict[str, int] = {}
    placed: dict[str, int] = {}  # rows of each tensor of the file so far
    for name, shape in shapes.items():
        first[name] = placed.get(names[name], 0)
        placed[names[name]] = first[name] + shape[0]
    places = {}
    for name, shape in shapes.items():
        order, factors = _head_order(spec, form, name)
        added = form.norm_added if name.endswith("norm.weight") else 0.0
        file_shape = (placed[names[name]], *shape[1:])
        places[name] = Place(names[name], file_shape, shape, first[name], order, factors, added)
    return places


def tensor_shapes(spec: ModelSpec) -> dict[str, Shape]:
    """Canonical name -> [N outputs, K inputs] or [N], in model order."""
    hidden, ffn = spec.hidden_size, spec.intermediate_size
    widths = {"q": spec.num_heads * spec.head_dim, "k": spec.num_kv_heads * spec.head_dim}
    widths["v"] = widths["k"]
    shapes: dict[str, Shape] = {"embed.weight": (spec.vocab_size, hidden)}
    for index in range(len(spec.layers)):
        at = f"layers.{index}."
        shapes[at + "attn_norm.weight"] = (hidden,)
        for role, width in widths.items():
            shapes[f"{at}attn.{role}_proj.weight"] = (width, hidden)
        if spec.qkv_bias:
            for role, width in widths.items():
                shapes[f"{at}attn.{role}_proj.bias"] = (width,)
        if spec.qk_norm:
            shapes[at + "attn.q_norm.weight"] = shapes[at + "attn.k_norm.weight"] = (spec.head_dim,)
        shapes[at + "attn.o_proj.weight"] = (hidden, widths["q"])
        if spec.post_norms:
            shapes[at + "attn_post_norm.weight"] = (hidden,)
        shapes[at + "ffn_norm.weight"] = (hidden,)
        shapes[at + "ffn.gate_proj.weight"] = shapes[at + "ffn.up_proj.weight"] = (ffn, hidden)
        shapes[at + "ffn.down_proj.weight"] = (hidden, ffn)
        if spec.post_norms:
            shapes[at + "ffn_post_norm.weight"] = (hidden,)
    shapes["final_norm.weight"] = (hidden,)
    if not spec.tied_head:
        shapes["head.weight"] = (spec.vocab_size, hidden)
    return shapes


def _file_name(name: str, form: FileForm) -> str:
    parts = name.split(".")
    if parts[0] != "layers":
        return form.names[name]
    return form.names[".".join(("layers", *parts[2:]))].replace("{}", parts[1])


def _head_order(spec: ModelSpec, form: FileForm, name: str) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """head_rows and head_factors of a tensor."""
    parts = name.split(".")
    if parts[0] != "layers" or parts[-2] not in _TURNED:
        return (), ()
    rope, half = spec.ropes[spec.layers[int(parts[1])].rope], spec.head_dim // 2
    if form.interleaved:
        return tuple(2 * index + side for side in (0, 1) for index in range(half)), ()
    if rope.dim in (0, spec.head_dim):
        return (), ()
    # Ours turns channel i with i + half. The file turns the first `rope.dim` channels, i with i + turned; the others stand
    # still, and fill up both halves.
    turned, still = rope.dim // 2, half - rope.dim // 2
    first, second = range(turned), range(turned, rope.dim)
    rest = range(rope.dim, spec.head_dim)
    order = (*first, *rest[:still], *second, *rest[still:])
    if parts[-2] != "q_proj" or rope.q_scale == 1.0:
        return order, ()
    return order, tuple(rope.q_scale if row < rope.dim else 1.0 for row in order)
