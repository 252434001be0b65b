"""KV memory of engines without pages. Owns: its bytes. Needs: spec. Never: formats other than fp16."""

from __future__ import annotations

from edge.spec import ModelSpec

SEQUENCES = 1  # that an engine with linear KV carries


def linear_bytes(spec: ModelSpec, context: int, sequences: int) -> int:
    """KV in one fp16 tensor a layer, for K and for V: every layer holds the whole context, windows free nothing."""
    return sequences * context * len(spec.layers) * 2 * spec.num_kv_heads * spec.head_dim * 2
