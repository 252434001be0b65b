"""What a tokenizer.json does with text around its model. Owns: which normalizers, pre-tokenizers and post-processors are read,
and what they come to. Needs: the parsed file. Never: the vocabulary.

Two kinds of pipeline are read, and nothing that is not known is left out in silence: byte-level ones (GPT-2, SmolLM, Qwen,
Llama 3, Mistral's tekken, Phi-4-mini) and those of SentencePiece vocabularies with byte fallback (Llama 2, Mistral, Phi-3,
Gemma). What each step does: https://github.com/huggingface/tokenizers (src/normalizers, src/pre_tokenizers, src/processors).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edge.errors import SourceError
from edge.text.pieces import SPACE
from edge.text.tokenizer_config import SpacePrefix, Symbols
from engines.sources.pre_tokenizers import DIGITS, GPT2, KNOWN_SPLITS

USE_ANOTHER = "Use another model, or a GGUF file of this one"
PREPEND = {"type": "Prepend", "prepend": SPACE}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
# Gemma's: behind REPLACE there is no space left to split at.
IDLE_SPLIT = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
SCHEMES: dict[str, SpacePrefix] = {"always": "sections_unless_space", "first": "start_unless_space", "never": "none"}
MAX_DEPTH = 4  # of sequences in sequences


@dataclass(frozen=True, slots=True)
class Pipeline:
    """How text becomes pieces."""

    symbols: Symbols
    split: tuple[str, ...]  # byte-level: regular expressions (Oniguruma)
    nfc: bool
    space_prefix: SpacePrefix


def read_pipeline(normalizer: Any, pre_tokenizer: Any) -> Pipeline:
    """SourceError, without the file's name, for steps that are not read."""
    before, cuts = _steps(normalizer, "normalizers"), _steps(pre_tokenizer, "pretokenizers")
    if cuts and cuts[-1].get("type") == "ByteLevel":
        return _byte_pipeline(before, cuts)
    return _character_pipeline(before, cuts)


def _byte_pipeline(before: list[dict[str, Any]], cuts: list[dict[str, Any]]) -> Pipeline:
    nfc = [step.get("type") for step in before] == ["NFC"]
    if before and not nfc:
        raise _unread("normalizer", before[0])
    *splits, last = cuts
    if last.get("add_prefix_space"):
        raise _unread("pre_tokenizer", last)
    found = [_expression(step) for step in splits]
    if last.get("use_regex", True):
        found.append(GPT2)
    if not found:
        raise SourceError(f"pre_tokenizer: cuts text nowhere, which is not read. {USE_ANOTHER}")
    return Pipeline("bytes", tuple(found), nfc, "none")


def _expression(step: dict[str, Any]) -> str:
    if step.get("type") == "Digits" and step.get("individual_digits") is True:
        return DIGITS
    pattern = step.get("pattern")
    if step.get("type") != "Split" or not isinstance(pattern, dict) or pattern.keys() != {"Regex"}:
        raise _unread("pre_tokenizer", step)
    expression = pattern["Regex"]
    if not isinstance(expression, str) or expression not in (*KNOWN_SPLITS, DIGITS):
        fact = f"cuts by an expression that is not known: {str(expression)[:600]!a}"
        raise SourceError(f"pre_tokenizer: {fact}. Known: {', '.join(KNOWN_SPLITS.values())}. {USE_ANOTHER}")
    # To keep the matches and to remove what is none is the same where matches leave nothing out, as those of KNOWN_SPLITS do.
    kept = step.get("behavior"), step.get("invert", False)
    if kept != ("Isolated", False) and not (kept == ("Removed", True) and expression in KNOWN_SPLITS):
        raise _unread("pre_tokenizer", step)
    return expression


def _character_pipeline(before: list[dict[str, Any]], cuts: list[dict[str, Any]]) -> Pipeline:
    if before in ([PREPEND, REPLACE], [REPLACE]) and cuts in ([], [IDLE_SPLIT]):
        return Pipeline("characters", (), False, "sections" if before[0] == PREPEND else "none")
    if before:
        raise _unread("normalizer", next((step for step in before if step not in (PREPEND, REPLACE)), before[-1]))
    if len(cuts) != 1 or cuts[0].get("type") != "Metaspace":
        raise _unread("pre_tokenizer", cuts[0] if cuts else {"type": "none"})
    step = cuts[0]
    scheme = step.get("prepend_scheme", "always" if step.get("add_prefix_space", True) else "never")
    if step.get("replacement") != SPACE or step.get("split", True) is not False or str(scheme) not in SCHEMES:
        raise _unread("pre_tokenizer", step)
    return Pipeline("characters", (), False, SCHEMES[str(scheme)])


def read_bos(post_processor: Any) -> str | None:
    """The token that a post-processor puts in front of text; None where it puts none. Those behind text are not ours: behind a
    prompt they would end the answer before it begins. SourceError for what is not read."""
    fronts: list[str] = []
    for step in _steps(post_processor, "processors"):
        if step.get("type") == "ByteLevel":  # offsets only
            continue
        parts = step.get("single")
        if step.get("type") != "TemplateProcessing" or not isinstance(parts, list):
            raise _unread("post_processor", step)
        names = [_special(part) for part in parts]
        if names.count(None) != 1:
            raise _unread("post_processor", step)
        fronts += [name for name in names[: names.index(None)] if name is not None]
    if len(fronts) > 1:
        raise SourceError(f"post_processor: puts {len(fronts)} tokens in front of text; one is read. {USE_ANOTHER}")
    return fronts[0] if fronts else None


def _special(part: Any) -> str | None:
    """The special token that a part of a template is; None for the text."""
    if isinstance(part, dict) and isinstance(token := part.get("SpecialToken"), dict) and isinstance(token.get("id"), str):
        return str(token["id"])
    if isinstance(part, dict) and isinstance(part.get("Sequence"), dict):
        return None
    raise SourceError(f"post_processor: its template holds {str(part)[:80]!a}. {USE_ANOTHER}")


def _steps(value: Any, key: str, depth: int = 0) -> list[dict[str, Any]]:
    """The steps of a part of the pipeline, one after the other."""
    if value is None:
        return []
    if not isinstance(value, dict):
        raise SourceError(f"{key}: {str(value)[:80]!a} is no step. Fetch the file again")
    if value.get("type") != "Sequence":
        return [value]
    steps = value.get(key)
    if not isinstance(steps, list) or depth == MAX_DEPTH:
        raise SourceError(f"{key}: a sequence without a list of steps, or too deep. Fetch the file again")
    return [inner for step in steps for inner in _steps(step, key, depth + 1)]


def _unread(part: str, step: dict[str, Any]) -> SourceError:
    said = ", ".join(f"{key} {value!a}" for key, value in step.items() if key != "type" and not isinstance(value, dict | list))
    name = f"{step.get('type')!s}{f' ({said})' if said else ''}"
    return SourceError(f"{part}: {name[:200]} is not read there. {USE_ANOTHER}")
