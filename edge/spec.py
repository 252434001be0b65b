"""What a model is, in numbers. Owns: ModelSpec and its layer groups. Needs: nothing. Never: files, tensors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """Attention of one layer."""

    window: int  # a query at t sees (t - window, t]; 0: everything before it
    rope_base: float


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A decoder-only language model. Written by engines/sources, stored in the manifest, read by everyone."""

    name: str
    architecture: str  # llama, gemma3 ...
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    layers: tuple[LayerSpec, ...]
    context_length: int
    norm_epsilon: float
    activation: str  # silu, gelu_tanh
    attention_scale: float  # factor on q.k
    embedding_scale: float  # factor on embedding rows; 1.0 for most
    qk_norm: bool  # rms norm per head on q and k before rotary
    post_norms: bool  # rms norm behind attention and behind the feed-forward, before the residual
    tied_head: bool
    attention_soft_cap: float = 0.0  # 0: none
    logit_soft_cap: float = 0.0  # 0: none

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Layer groups: layer indices by window, the full group first, then windows ascending."""
        windows = sorted({layer.window for layer in self.layers})
        return tuple(tuple(i for i, layer in enumerate(self.layers) if layer.window == w) for w in windows)

    @property
    def group_windows(self) -> tuple[int, ...]:
        """Window of each layer group, in the order of `groups`."""
        return tuple(sorted({layer.window for layer in self.layers}))
