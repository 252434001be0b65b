"""Optimization profiles. Owns: which shapes an engine takes, and is tuned for. Needs: contract, spec. Never: a library.

`prefill` is tuned for whole chunks of a prompt, `decode` for one new token of a sequence, with room for the few rows of a check
of drafted tokens. That room also keeps the weights single: TensorRT-RTX 1.7 stores those in float16 once more for a profile
whose rows are always one, and dequantises int8 in memory there (SmolLM2 in fp16, 269 MB of weights: a plan of 551 MB with S = 1
and of 283 MB with S from 1 to 8).
"""

from __future__ import annotations

from typing import Literal

from edge.contract import PAGE_TOKENS
from edge.engine_record import EngineProfile, ShapeRange
from edge.spec import ModelSpec

Sizes = tuple[int, int, int]  # smallest, tuned, largest

DRAFTED = 8  # rows of a check of drafted tokens, at most
PAGED_SEQUENCES = 8  # of one step over pages
PAGE_MOVES = 256  # of one step: a chunk of each of eight sequences seals 4 pages of K and of V in up to four layer groups


def profiles_of(attention: Literal["linear", "paged"], spec: ModelSpec, chunk: int, context: int) -> tuple[EngineProfile, ...]:
    """Profiles `prefill` and `decode` for chunks of `chunk` tokens and sequences of up to `context`."""
    if attention == "linear":
        prefill = _linear("prefill", (1, chunk, chunk), (1, 1, chunk), context)
        few = (1, 1, min(DRAFTED, chunk))
        return prefill, _linear("decode", few, few, context)
    sequences: Sizes = (1, 1, PAGED_SEQUENCES)
    prefill = _paged("prefill", (1, chunk, max(chunk, PAGED_SEQUENCES)), sequences, (1, 1, chunk), spec, context)
    return prefill, _paged("decode", sequences, sequences, sequences, spec, context)


def _linear(name: str, tokens: Sizes, rows: Sizes, context: int) -> EngineProfile:
    """Caches of one sequence, B = 1."""
    ids = _range(*((1, count) for count in tokens))
    shapes = {
        "input_ids": ids,
        "position_ids": ids,
        "attention_mask": _range(*((1, 1, count, context) for count in tokens)),
        "logit_rows": _range(*((count,) for count in rows)),
    }
    return EngineProfile(name, shapes)


def _paged(name: str, tokens: Sizes, sequences: Sizes, rows: Sizes, spec: ModelSpec, context: int) -> EngineProfile:
    """Tokens of several sequences packed, their pages in one table."""
    pages = -(-context // PAGE_TOKENS)
    shapes = {
        "input_ids": _range(*((count,) for count in tokens)),
        "query_start": _range(*((count + 1,) for count in sequences)),
        "kv_len": _range(*((count,) for count in sequences)),
        "page_table": _range(*((len(spec.groups), count, pages, 2) for count in sequences)),
        "page_moves": _range((1, 4), (1, 4), (PAGE_MOVES, 4)),
        "logit_rows": _range(*((count,) for count in rows)),
    }
    return EngineProfile(name, shapes)


def _range(*shapes: tuple[int, ...]) -> ShapeRange:
    smallest, tuned, largest = shapes
    return ShapeRange(smallest, tuned, largest)
