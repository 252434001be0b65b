"""The size of the pool for a load. Owns: the choice between the rules. Needs: fit, config. Never: allocates."""

from __future__ import annotations

from edge.config import InferenceConfig
from edge.pages.fit import PoolSize, cut_pool, fit_pool
from edge.pages.geometry import GroupPages

_MIB = 1 << 20


def plan_pool(groups: tuple[GroupPages, ...], context: int, sequences: int, config: InferenceConfig) -> PoolSize:
    """The pool that `config.pool_rule` gives `sequences` sequences of up to `context` tokens."""
    if config.pool_rule == "articles":
        # "The layer going to zero": pool MiB = context / 1024 * 64 + 2048, whatever the model.
        return cut_pool(groups, (context * 64 // 1024 + 2048) * _MIB, config.slab_bytes, config.chunk_tokens)
    return fit_pool(groups, context, sequences, config.slab_bytes, config.chunk_tokens)
