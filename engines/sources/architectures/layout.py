"""What decoder architectures share: their dimensions, the tensors of a layer. Owns: canonical names and where a GGUF keeps
them. Needs: keys. Never: tensor values."""

from __future__ import annotations

from dataclasses import dataclass

from edge.spec import ModelSpec
from engines.sources.keys import Keys

MOST_LAYERS = 10_000  # we make a list of them before we look for their tensors


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Sizes that every decoder has, by the same keys."""

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


@dataclass(frozen=True, slots=True)
class Place:
    """Where a canonical tensor is found."""

    file_name: str
    shape: tuple[int, ...]
    interleaved_head: int  # rows of a head whose rotary halves are interleaved in the file; 0: rows are in order


def read_dimensions(keys: Keys, name: str, vocab_size: int, tied_head: bool) -> Dimensions:
    """The sizes in a GGUF's keys; the vocabulary is the embedding's number of rows."""
    architecture = keys.text("general.architecture")
    prefix = architecture + "."
    stated = keys.count_or(prefix + "vocab_size", vocab_size)
    if stated != vocab_size:
        raise keys.error(prefix + "vocab_size", f"is {stated:,}, the embedding has {vocab_size:,} rows")
    hidden = keys.count(prefix + "embedding_length")
    heads = keys.count(prefix + "attention.head_count")
    kv_heads = keys.count_or(prefix + "attention.head_count_kv", heads)
    if heads % kv_heads:
        raise keys.error(prefix + "attention.head_count_kv", f"is {kv_heads}, which does not divide {heads} heads")
    key_length = prefix + "attention.key_length"
    if key_length not in keys and hidden % heads:
        raise keys.error(key_length, f"is missing, and {heads} heads do not divide a width of {hidden}")
    head_dim = keys.count_or(key_length, hidden // heads)
    value_length = keys.count_or(prefix + "attention.value_length", head_dim)
    rotary = keys.count_or(prefix + "rope.dimension_count", head_dim)
    for key, size in (("attention.value_length", value_length), ("rope.dimension_count", rotary)):
        if size != head_dim:
            raise keys.error(prefix + key, f"is {size}, heads are {head_dim} wide; only equal ones work", "Use another model")
    if head_dim % 2:
        raise keys.error(key_length, f"is {head_dim}; rotary positions need an even number")
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


def refuse_rope_scaling(keys: Keys, prefix: str) -> None:
    """Fails where a model stretches its rotary positions: computing without that would be wrong beyond the first tokens."""
    scaling = keys.text_or(prefix + "rope.scaling.type", "none")
    factor = keys.real_or(prefix + "rope.scaling.factor", 1.0)
    linear = keys.real_or(prefix + "rope.scale_linear", 1.0)
    if scaling != "none" or factor != 1.0 or linear != 1.0:
        fact = f"scaled rotary positions ({scaling}, factor {max(factor, linear):g}) cannot be built yet"
        raise keys.error(prefix + "rope.scaling.type", fact, "Use another model")


def plan_places(spec: ModelSpec, interleaved_rotary: bool) -> dict[str, Place]:
    """Canonical name -> place, in model order."""
    hidden, ffn = spec.hidden_size, spec.intermediate_size
    q_width, kv_width = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    head = spec.head_dim if interleaved_rotary else 0
    places = {"embed.weight": Place("token_embd.weight", (spec.vocab_size, hidden), 0)}
    for index in range(len(spec.layers)):
        ours, theirs = f"layers.{index}.", f"blk.{index}."
        places[ours + "attn_norm.weight"] = Place(theirs + "attn_norm.weight", (hidden,), 0)
        places[ours + "attn.q_proj.weight"] = Place(theirs + "attn_q.weight", (q_width, hidden), head)
        places[ours + "attn.k_proj.weight"] = Place(theirs + "attn_k.weight", (kv_width, hidden), head)
        places[ours + "attn.v_proj.weight"] = Place(theirs + "attn_v.weight", (kv_width, hidden), 0)
        if spec.qk_norm:
            places[ours + "attn.q_norm.weight"] = Place(theirs + "attn_q_norm.weight", (spec.head_dim,), 0)
            places[ours + "attn.k_norm.weight"] = Place(theirs + "attn_k_norm.weight", (spec.head_dim,), 0)
        places[ours + "attn.o_proj.weight"] = Place(theirs + "attn_output.weight", (hidden, q_width), 0)
        if spec.post_norms:
            places[ours + "attn_post_norm.weight"] = Place(theirs + "post_attention_norm.weight", (hidden,), 0)
        places[ours + "ffn_norm.weight"] = Place(theirs + "ffn_norm.weight", (hidden,), 0)
        places[ours + "ffn.gate_proj.weight"] = Place(theirs + "ffn_gate.weight", (ffn, hidden), 0)
        places[ours + "ffn.up_proj.weight"] = Place(theirs + "ffn_up.weight", (ffn, hidden), 0)
        places[ours + "ffn.down_proj.weight"] = Place(theirs + "ffn_down.weight", (hidden, ffn), 0)
        if spec.post_norms:
            places[ours + "ffn_post_norm.weight"] = Place(theirs + "post_ffw_norm.weight", (hidden,), 0)
    places["final_norm.weight"] = Place("output_norm.weight", (hidden,), 0)
    if not spec.tied_head:
        places["head.weight"] = Place("output.weight", (spec.vocab_size, hidden), 0)
    return places
