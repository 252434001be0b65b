"""Models as sizes alone: yaml/shapes. Owns: Shape. Needs: yamls, spec. Never: weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edge.errors import ConfigError
from edge.spec import LayerSpec, ModelSpec, RopeSpec
from edge.yamls import load_named, load_yaml, yaml_names

_ROPE_BASE = 10000.0  # whatever the model's: angles cost the same


@dataclass(frozen=True, slots=True)
class Shape:
    """What decides how fast a model is; its head is its embedding."""

    title: str
    source: str  # where the numbers come from
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    num_layers: int
    context_length: int
    activation: Literal["silu", "gelu_tanh"] = "silu"
    qk_norm: bool = False
    post_norms: bool = False
    qkv_bias: bool = False
    window: int = 0  # tokens that a layer with a window sees; 0: all layers see everything
    full_every: int = 1  # with a window: each layer of this number sees everything

    def __post_init__(self) -> None:
        if min(self.num_layers, self.full_every) < 1:
            raise ValueError("num_layers and full_every must be at least 1")
        self.spec("shape").check()

    def spec(self, name: str) -> ModelSpec:
        """The model of these sizes."""
        layers = (self.window if (layer + 1) % self.full_every else 0 for layer in range(self.num_layers))
        return ModelSpec(
            name=name,
            architecture="synthetic",
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            intermediate_size=self.intermediate_size,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            layers=tuple(LayerSpec(window, rope=0) for window in layers),
            ropes=(RopeSpec(self.head_dim, _ROPE_BASE, ()),),
            context_length=self.context_length,
            norm_epsilon=1e-5,
            activation=self.activation,
            attention_scale=1 / math.sqrt(self.head_dim),
            embedding_scale=1.0,
            qk_norm=self.qk_norm,
            post_norms=self.post_norms,
            tied_head=True,
            qkv_bias=self.qkv_bias,
        )


def shape_names() -> tuple[str, ...]:
    return yaml_names("shapes")


def load_shape(name: str) -> Shape:
    """A shape by its name, or the file of one, which ends in .yaml. ConfigError where there is none."""
    if not name.endswith(".yaml"):
        return load_named("shapes", name, Shape)
    if not Path(name).is_file():
        raise ConfigError(f"{name}: no such file. Give a YAML file with the keys of those in yaml/shapes, or a name")
    return load_yaml(Path(name), Shape)
