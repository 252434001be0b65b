"""The text that verdicts and calibration read. Owns: its windows of tokens. Needs: a tokenizer. Never: logits.

Verdicts read it from its beginning, calibration its end: what a scale was chosen on is not what it is judged on.
"""

from __future__ import annotations

from collections.abc import Sequence

from calibration.build_text import read_build_text
from edge.errors import ConfigError
from edge.manifest import Verdict
from edge.text.tokenizer import Tokenizer

Windows = tuple[tuple[int, ...], ...]


def first_windows(tokenizer: Tokenizer, tokens: int, window: int) -> Windows:
    """Consecutive windows of the text, `tokens` ids in all, each framed as the model expects a prompt (BOS in front)."""
    ids = _text_ids(tokenizer)
    if tokens > len(ids):
        raise ConfigError(f"--verify-tokens {tokens}: the text has {len(ids)} tokens for this model. Use at most that")
    return _windows(tokenizer, ids[:tokens], window)


def last_windows(tokenizer: Tokenizer, tokens: int, window: int) -> Windows:
    """As first_windows, of the end of the text."""
    return _windows(tokenizer, _text_ids(tokenizer)[-tokens:], window)


def text_tokens(verdict: Verdict, tokenizer: Tokenizer) -> int:
    """The `tokens` of first_windows that gave this verdict."""
    return verdict.tokens - verdict.windows * len(tokenizer.frame([]))


def _text_ids(tokenizer: Tokenizer) -> Sequence[int]:
    return tokenizer.encode(read_build_text(), specials=False)


def _windows(tokenizer: Tokenizer, ids: Sequence[int], window: int) -> Windows:
    room = window - len(tokenizer.frame([]))  # BOS takes a place
    pieces = [ids[begin : begin + room] for begin in range(0, len(ids), room)]
    return tuple(tuple(tokenizer.frame(list(piece))) for piece in pieces if len(piece) > 1)
