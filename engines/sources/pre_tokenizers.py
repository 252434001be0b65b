"""Pre-tokenizers of byte-level vocabularies: by their GGUF name, and the expressions that a tokenizer.json may hold. Owns:
their regular expressions. Needs: nothing.

A GGUF file names how text is cut before merging (tokenizer.ggml.pre) but does not hold the expressions. These are the ones
of the models' own tokenizer.json; llama.cpp (src/llama-vocab.cpp) assigns the names. Where it uses an expression of its own
(`default`, `falcon`) that one is used, since the name stands for it. Applied one after the other, each cuts what the one
before left; matches and what lies between them are pieces alike.
"""

from __future__ import annotations

from dataclasses import dataclass

DIGITS = r"\p{N}"  # one by one
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_HEAD = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+"
_LLAMA3 = rf"{_HEAD}|\p{{N}}{{1,3}}|{_TAIL}"
_QWEN2 = rf"{_HEAD}|\p{{N}}|{_TAIL}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Each of them matches some of any text, whatever stands there: what they leave out is nothing.
KNOWN_SPLITS = {GPT2: "gpt-2", _LLAMA3: "llama 3", _QWEN2: "qwen 2", _TEKKEN: "mistral tekken", _O200K: "o200k"}


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """What the name of a pre-tokenizer stands for."""

    split: tuple[str, ...]  # Oniguruma expressions
    whole_pieces: bool = False  # a piece that is a token is taken before anything merges
    add_bos: bool = False  # where the file does not say
    nfc: bool = False  # text is brought to NFC first


_SMOLLM = PreTokenizer((r"\p{N}", GPT2))
_PLAIN = PreTokenizer((GPT2,))
_LLAMA = PreTokenizer((_LLAMA3,), whole_pieces=True, add_bos=True)
_QWEN = PreTokenizer((_QWEN2,), nfc=True)

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "gpt-2": _PLAIN,
    "mpt": _PLAIN,
    "olmo": _PLAIN,
    "phi-2": _PLAIN,
    "smollm": _SMOLLM,
    "starcoder": _SMOLLM,
    "refact": _SMOLLM,
    "command-r": _SMOLLM,
    "llama-bpe": _LLAMA,
    "llama3": _LLAMA,
    "llama-v3": _LLAMA,
    "dbrx": PreTokenizer((_LLAMA3,)),
    "smaug-bpe": PreTokenizer((_LLAMA3,)),
    "qwen2": _QWEN,
    "deepseek-r1-qwen": _QWEN,
    "stablelm2": _QWEN,
    "tekken": PreTokenizer((_TEKKEN,), whole_pieces=True),
    "gpt-4o": PreTokenizer((_O200K,)),
    "falcon": PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]")),
}
