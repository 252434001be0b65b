"""What a runtime is asked to carry, made definite. Owns: the limits of one runtime. Needs: manifest, config. Never: state."""

from __future__ import annotations

from edge.config import Auto, InferenceConfig
from edge.errors import BudgetError, RequestError
from edge.manifest import Limits
from edge.pages.fit import PoolSize, bytes_needed, pressed_bytes
from edge.pages.geometry import GroupPages, own_tokens
from edge.spec import ModelSpec
from edge.units import human_bytes


def resolve_limits(engine: Limits, context: int | Auto, max_sequences: int, config: InferenceConfig) -> Limits:
    """The limits of one runtime within those of its engine. RequestError, with both numbers, where the engine takes less."""
    if isinstance(context, Auto):
        context = min(config.context, engine.max_context)
    if not 1 <= context <= engine.max_context:
        raise RequestError(f"context of {context} tokens: the engine takes 1 to {engine.max_context}. Ask for one within that")
    most = min(engine.max_sequences, engine.max_logit_rows)
    if not 1 <= max_sequences <= most:
        raise RequestError(f"{max_sequences} sequences at once: the engine takes 1 to {most}. Ask for a number within that")
    # Every sequence that decodes must find its place in a step.
    step_tokens = max(max_sequences, min(config.max_step_tokens, engine.max_step_tokens))
    if step_tokens > engine.max_step_tokens:
        fact = f"{max_sequences} sequences at once: a step of the engine takes {engine.max_step_tokens} tokens"
        raise RequestError(f"{fact}, one of each at least. Ask for fewer")
    return Limits(context, step_tokens, max_sequences, max_sequences)


def check_fits(
    groups: tuple[GroupPages, ...],
    size: PoolSize,
    tokens: int,
    chunk_tokens: int,
    kept_pages: int | None = None,
    shared: int = 0,
) -> None:
    """BudgetError where one sequence of `tokens` tokens, the first `shared` in a file, would not fit alone into an empty pool,
    also with its pages demoted but for `kept_pages`; None: none is."""
    own = own_tokens(tokens, shared)
    needed = bytes_needed(groups, size, own, 1, chunk_tokens)
    if needed <= size.pool_bytes:
        return
    pressed = ""
    if kept_pages is not None and any(group.demotes for group in groups):
        demoted = pressed_bytes(groups, size, own, kept_pages, chunk_tokens)
        if demoted <= size.pool_bytes:
            return
        pressed = f", {human_bytes(demoted)} with all demoted that may be"
    behind = f" behind the {shared} of its prefix" if shared else ""
    raise BudgetError(
        f"a request of up to {tokens - shared} tokens{behind} needs {human_bytes(needed)} of KV pages{pressed}, the pool has "
        f"{human_bytes(size.pool_bytes)}. Ask for fewer tokens, or give the pool more"
    )


def check_prompt(spec: ModelSpec, tokens: list[int], max_tokens: int, context: int) -> None:
    """RequestError where a prompt or the length of its answer makes no sense for this model and context."""
    if not tokens:
        raise RequestError("the prompt is empty. Give at least one token")
    if len(tokens) > context:
        raise RequestError(
            f"the prompt has {len(tokens)} tokens, the context {context}. "
            f"Shorten it, or ask for a larger context where the package allows one"
        )
    if max_tokens < 1:
        raise RequestError(f"max_tokens is {max_tokens}. Ask for at least 1")
    wrong = next((token for token in tokens if not 0 <= token < spec.vocab_size), None)
    if wrong is not None:
        raise RequestError(f"token id {wrong} is outside the vocabulary of {spec.vocab_size}. Use this package's own tokenizer")
