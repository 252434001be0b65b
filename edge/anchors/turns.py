"""Turns of a chat. Owns: how speakers are written. Needs: lines. Never: templates; a rendered chat is text here."""

from __future__ import annotations

import re

import numpy as np

from edge.anchors.found import NOTHING, Found, found_places
from edge.anchors.lines import Lines

# What chat templates write in front of a role, and the roles that people write in front of a colon.
_MARKER = re.compile(
    r"<\|im_start\|>|<start_of_turn>|<\|start_header_id\|>|<\|(?:user|assistant|system|tool)\|>|\[INST\]|<\|turn>"
    r"|^###? (?:Instruction|Response|Input|Human|Assistant|User):?(?=[ \t]*$)",
    re.M,
)
_SPEAKER = re.compile(
    r"^[ \t]{0,3}(?:\*\*)?(User|Human|Assistant|System|AI|Bot|Benutzer|Nutzer|Assistent|Utilisateur|Assistante?"
    r"|Usuario|Asistente|用户|助手|系统)(?:\*\*)?[ \t]?[:：]",
    re.M | re.I,
)
_TURNS_AT_LEAST = 3  # "System:" may also head a table; a chat has several turns of two speakers


def find_turns(lines: Lines, code: np.ndarray) -> Found:
    """Where a speaker begins: markers of templates as they are, names with a colon where at least two take three turns."""
    text = lines.text
    begins = [match.start() for match in _MARKER.finditer(text)] if "<" in text or "[INST]" in text or "##" in text else []
    spoken = [(match.start(), match[1].casefold()) for match in _SPEAKER.finditer(text)] if ":" in text or "：" in text else []
    if len(spoken) >= _TURNS_AT_LEAST and len({speaker for _, speaker in spoken}) > 1:
        begins += [begin for begin, _ in spoken]
    if not begins:
        return NOTHING
    at = np.unique(np.array(begins, np.int64))
    line = lines.at(at)
    at, line = at[~code[line]], line[~code[line]]
    return found_places(at, np.maximum(np.minimum(lines.lasts[line], at + 80), at), np.full(len(at), 2))
