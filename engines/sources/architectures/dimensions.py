"""Sizes that every decoder has. Owns: Dimensions, GgufFile, where each kind of file keeps a size. Needs: keys.
Never: tensors, what an architecture makes of its sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from edge.spec import LayerSpec, ModelSpec, RopeSpec
from engines.sources.keys import Keys

MOST_LAYERS = 10_000  # we make a list of them before we look for their tensors
WIDEST_HEAD = 1 << 12  # and one of the divisors of a head's frequencies before the spec is checked (edge/spec.py)


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Fields of a ModelSpec that every architecture reads by the same keys, and the number of layers."""

    name: str
    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    num_layers: int
    context_length: int
    norm_epsilon: float
    tied_head: bool

    def spec(self, layers: tuple[LayerSpec, ...], ropes: tuple[RopeSpec, ...], **own: Any) -> ModelSpec:
        """The spec with these sizes. `own`: fields in which an architecture differs from Llama."""
        sizes = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "num_layers"}
        of_llama = {
            "activation": "silu", "attention_scale": self.head_dim**-0.5, "embedding_scale": 1.0,
            "qk_norm": False, "post_norms": False,
        }  # fmt: skip
        return ModelSpec(**(sizes | of_llama | {"layers": layers, "ropes": ropes} | own))

    def window(self, window: int) -> int:
        """As a LayerSpec has it: one that holds the whole context is none."""
        return 0 if window >= self.context_length else window


@dataclass(frozen=True, slots=True)
class GgufFile:
    """What an architecture reads of a GGUF file."""

    keys: Keys
    dims: Dimensions
    vectors: Mapping[str, tuple[float, ...]]  # the file's factors of rotary frequencies, by tensor name
    context: int | None  # positions that the caller will use at most; None: all that the model has


def read_gguf_dimensions(keys: Keys, name: str, vocab_size: int, tied_head: bool) -> Dimensions:
    """The sizes in a GGUF's keys; the vocabulary is the embedding's number of rows."""
    architecture = keys.text("general.architecture")
    prefix = architecture + "."
    stated = keys.count_or(prefix + "vocab_size", vocab_size)
    if stated != vocab_size:
        raise keys.error(prefix + "vocab_size", f"is {stated:,}, the embedding has {vocab_size:,} rows")
    hidden = keys.count(prefix + "embedding_length")
    heads = keys.count(prefix + "attention.head_count")
    kv_heads = keys.count_or(prefix + "attention.head_count_kv", heads)
    head_dim = _head_dim(keys, prefix + "attention.key_length", hidden, heads)
    value_length = keys.count_or(prefix + "attention.value_length", head_dim)
    if value_length != head_dim:
        fact = f"is {value_length}, heads are {head_dim} wide; only equal ones work"
        raise keys.error(prefix + "attention.value_length", fact, "Use another model")
    _check_heads(keys, prefix + "attention.head_count_kv", heads, kv_heads)
    return Dimensions(
        name=name,
        architecture=architecture,
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=keys.count(prefix + "feed_forward_length"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        num_layers=keys.count(prefix + "block_count", at_most=MOST_LAYERS),
        context_length=keys.count(prefix + "context_length"),
        norm_epsilon=keys.real(prefix + "attention.layer_norm_rms_epsilon"),
        tied_head=tied_head,
    )


def read_config_dimensions(keys: Keys, name: str, architecture: str, *, tied: bool, prefix: str = "") -> Dimensions:
    """The sizes in a config.json. `tied`: what the architecture means where its file says nothing of tie_word_embeddings."""
    hidden = keys.count(prefix + "hidden_size")
    heads = keys.count(prefix + "num_attention_heads")
    kv_heads = keys.count_or(prefix + "num_key_value_heads", heads)
    _check_heads(keys, prefix + "num_key_value_heads", heads, kv_heads)
    own = prefix + "tie_word_embeddings"  # of the text part; else the whole model's
    return Dimensions(
        name=name,
        architecture=architecture,
        vocab_size=keys.count(prefix + "vocab_size"),
        hidden_size=hidden,
        intermediate_size=keys.count(prefix + "intermediate_size"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=_head_dim(keys, prefix + "head_dim", hidden, heads),
        num_layers=keys.count(prefix + "num_hidden_layers", at_most=MOST_LAYERS),
        context_length=keys.count(prefix + "max_position_embeddings"),
        norm_epsilon=keys.real(prefix + "rms_norm_eps"),
        tied_head=keys.flag(own) if own in keys else keys.flag_or("tie_word_embeddings", tied),
    )


def _head_dim(keys: Keys, key: str, hidden: int, heads: int) -> int:
    if key not in keys and hidden % heads:
        raise keys.error(key, f"is missing, and {heads} heads do not divide a width of {hidden}")
    head_dim = keys.count_or(key, hidden // heads)
    if head_dim > WIDEST_HEAD:
        raise keys.error(key, f"makes heads {head_dim:,} wide, over {WIDEST_HEAD:,}")
    if head_dim % 2:
        raise keys.error(key, f"is {head_dim}; rotary positions need an even number")
    return head_dim


def _check_heads(keys: Keys, key: str, heads: int, kv_heads: int) -> None:
    if heads % kv_heads:
        raise keys.error(key, f"is {kv_heads}, which does not divide {heads} heads")
