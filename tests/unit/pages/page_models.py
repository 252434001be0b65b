"""Models as far as pages see them. Owns: make_spec, SMOL, GEMMA."""

from __future__ import annotations

from edge.spec import LayerSpec, ModelSpec, RopeSpec


def make_spec(windows: tuple[int, ...], num_kv_heads: int = 2, head_dim: int = 16, name: str = "tiny") -> ModelSpec:
    return ModelSpec(
        name=name,
        architecture="llama",
        vocab_size=64,
        hidden_size=64,
        intermediate_size=64,
        num_heads=num_kv_heads * 2,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        layers=tuple(LayerSpec(window, 0) for window in windows),
        ropes=(RopeSpec(head_dim, 10000.0, ()),),
        context_length=8192,
        norm_epsilon=1e-5,
        activation="silu",
        attention_scale=0.25,
        embedding_scale=1.0,
        qk_norm=False,
        post_norms=False,
        tied_head=True,
    )


SMOL = make_spec((0,) * 30, num_kv_heads=3, head_dim=64, name="smol")
GEMMA = make_spec(tuple(0 if i % 6 == 5 else 512 for i in range(18)), num_kv_heads=1, head_dim=256, name="gemma")
