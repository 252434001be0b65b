"""What a model is, in numbers. Owns: ModelSpec and its layer groups. Needs: nothing. Never: files, tensors."""

from __future__ import annotations

from dataclasses import dataclass

MAX_CONTEXT = 1 << 24  # tokens

# Numbers that no model has would otherwise become allocations, divisions or overflows.
_RANGES = {
    "vocab_size": (1, 1 << 24),
    "hidden_size": (1, 1 << 20),
    "intermediate_size": (1, 1 << 22),
    "num_heads": (1, 1 << 12),
    "num_kv_heads": (1, 1 << 12),
    "head_dim": (2, 1 << 12),
    "context_length": (1, MAX_CONTEXT),
    "norm_epsilon": (0.0, 1.0),
    "attention_scale": (1e-6, 1e6),
    "embedding_scale": (1e-6, 1e6),
    "attention_soft_cap": (0.0, 1e6),
    "logit_soft_cap": (0.0, 1e6),
}
_MAX_LAYERS = 1 << 12
_MAX_WINDOW = 1 << 30
_ROPE_BASES = (1.0, 1e12)
_ROPE_DIVISORS = (1e-6, 1e6)


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """How the position turns the channels of a head, in pairs: channel i together with channel i + head_dim / 2.

    Pair i < dim / 2 turns by position * base ** (-2 i / dim) / divisors[i], the pairs behind do not turn.
    """

    dim: int  # channels that turn: head_dim; fewer, partial rotary; 0, the layer does not see positions
    base: float
    divisors: tuple[float, ...]  # dim / 2 of them: linear, llama3 and long-rope scaling; (): frequencies as they are
    q_scale: float = 1.0  # q_proj has its channels that turn times this: long-rope's factor, where others stand still


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """Attention of one layer."""

    window: int  # a query at t sees (t - window, t]; 0: everything before it
    rope: int  # index into ModelSpec.ropes


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
    ropes: tuple[RopeSpec, ...]
    context_length: int  # positions that the ropes are good for
    norm_epsilon: float
    activation: str  # silu, gelu_tanh
    attention_scale: float  # factor on q.k
    embedding_scale: float  # factor on embedding rows; 1.0 for most
    qk_norm: bool  # rms norm per head on q and k before rotary
    post_norms: bool  # rms norm behind attention and behind the feed-forward, before the residual
    tied_head: bool
    attention_soft_cap: float = 0.0  # 0: none
    logit_soft_cap: float = 0.0  # 0: none
    qkv_bias: bool = False  # a vector is added to each projection of q, k and v

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Layer groups: layer indices by window, the full group first, then windows ascending."""
        windows = sorted({layer.window for layer in self.layers})
        return tuple(tuple(i for i, layer in enumerate(self.layers) if layer.window == w) for w in windows)

    @property
    def group_windows(self) -> tuple[int, ...]:
        """Window of each layer group, in the order of `groups`."""
        return tuple(sorted({layer.window for layer in self.layers}))

    def check(self) -> None:
        """ValueError, with the field, where a number is one that no model has."""
        for name, (low, high) in _RANGES.items():
            check_range(f"spec.{name}", getattr(self, name), low, high)
        check_range("spec.layers", len(self.layers), 1, _MAX_LAYERS)
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"spec.num_heads: {self.num_heads} is not a multiple of num_kv_heads {self.num_kv_heads}")
        if self.head_dim % 2:
            raise ValueError(f"spec.head_dim: {self.head_dim} is odd, rotary turns channels in pairs")
        for i, layer in enumerate(self.layers):
            check_range(f"spec.layers[{i}].window", layer.window, 0, _MAX_WINDOW)
            check_range(f"spec.layers[{i}].rope", layer.rope, 0, len(self.ropes) - 1)
        for i, rope in enumerate(self.ropes):
            self._check_rope(f"spec.ropes[{i}]", rope)

    def _check_rope(self, key: str, rope: RopeSpec) -> None:
        check_range(f"{key}.dim", rope.dim, 0, self.head_dim)
        check_range(f"{key}.base", rope.base, *_ROPE_BASES)
        check_range(f"{key}.q_scale", rope.q_scale, 1e-6, 1e6)
        if rope.dim % 2:
            raise ValueError(f"{key}.dim: {rope.dim} is odd, rotary turns channels in pairs")
        if rope.divisors and len(rope.divisors) != rope.dim // 2:
            raise ValueError(f"{key}.divisors: {len(rope.divisors)} of them for {rope.dim // 2} pairs of channels")
        for i, divisor in enumerate(rope.divisors):
            check_range(f"{key}.divisors[{i}]", divisor, *_ROPE_DIVISORS)


def check_range(key: str, value: float, low: float, high: float) -> None:
    """ValueError, with the key, where a number is outside low .. high."""
    if not low <= value <= high:
        raise ValueError(f"{key}: {value} is outside {low} to {high}")
