"""The context that a user asks for. Owns: its limits. Needs: a model's spec. Never: memory."""

from __future__ import annotations

from edge.contract import PAGE_TOKENS
from edge.errors import RequestError
from edge.spec import ModelSpec


def wanted_context(spec: ModelSpec, asked: int | None, default: int) -> int:
    """`asked`, or `default` within the model's own. RequestError where the model has no such positions."""
    longest = spec.context_length
    if asked is None:
        return min(default, longest)
    if asked > longest:
        raise RequestError(f"{spec.name}: a context of {asked}, the model has {longest}. Use --ctx-size {longest}")
    return asked


def engine_context(spec: ModelSpec, asked: int | None, default: int) -> int:
    """As wanted_context, of an engine that fixes its caches: one page at least, which its proof needs."""
    context, least = wanted_context(spec, asked, default), min(PAGE_TOKENS, spec.context_length)
    if context < least:
        raise RequestError(f"{spec.name}: caches for a context of {context}, the least is {least}. Use --ctx-size {least}")
    return context
