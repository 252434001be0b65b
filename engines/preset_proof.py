"""The verdicts of KV presets. Owns: how much text a build spends on them. Needs: kv_eval, gates. Never: what an engine is.

Windows of the text of the other verdicts, each preset beside `exact` on the engine itself; the last quarter of each window is
compared. Longer contexts, several texts and needles are for `edge bench kv`.
"""

from __future__ import annotations

from pathlib import Path

from calibration.build_text import NAME
from edge.kv_eval.fed_sequence import FLOOR, open_sequences
from edge.kv_eval.forms import forms_of
from edge.kv_eval.likeness import measure_likeness
from edge.kv_eval.texts import Document
from edge.manifest import Verdict
from edge.preset_gates import FIRST_SEALED, judge_preset
from edge.presets import PRESETS
from edge.progress import Progress
from edge.spec import ModelSpec
from edge.text.tokenizer import Tokenizer
from engines.texts import first_windows

LEAST = 250  # positions compared, below which nothing is said
TOKENS, WINDOW = 8192, 2048  # of the text; a window, of which the last WINDOW // 4 positions are compared


def prove_presets(
    engine: Path, spec: ModelSpec, offered: tuple[str, ...], tokenizer: Path, tokens: int, progress: Progress
) -> dict[str, Verdict]:
    """A verdict for each preset of the CPU engine in the folder `engine` but `exact`, over at most `tokens` tokens of the text.
    Empty where the engine has `exact` alone, or too few tokens are sealed."""
    presets = tuple(name for name in PRESETS if name in offered)
    window = min(WINDOW, tokens, spec.context_length)
    if presets == ("exact",) or window <= FIRST_SEALED:
        return {}
    windows = first_windows(Tokenizer.open(tokenizer), tokens, window)
    documents = [Document(NAME, ids) for ids in windows if len(ids) == window]
    rows = min(window // 4, window - FIRST_SEALED)
    if rows * len(documents) < LEAST:
        return {}
    with open_sequences(engine, spec, forms_of(presets), window) as sequences:
        found = measure_likeness(sequences, documents, rows, 0, progress)
    floor = found[FLOOR].comparison
    return {
        preset: judge_preset(preset, found[preset].comparison, floor, text=NAME, windows=len(documents), window_tokens=window)
        for preset in presets
        if preset != "exact"
    }
