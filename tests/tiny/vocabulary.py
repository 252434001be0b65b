"""Two small vocabularies that can encode any text. Owns: Vocabulary, BYTE_LEVEL, SENTENCE_PIECE, CHATML. Needs: nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # gguf token types

CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

# Byte-level BPE writes a space as Ġ. Each pair makes one token, best first.
MERGES = """Ġ t,h e,i n,e r,a n,o n,r e,Ġt he,Ġ a,e n,o r,a t,Ġ o,e s,Ġ s,i s,Ġ w,Ġo f,in g,Ġa n,Ġan d,Ġ i,Ġi n,a l,l l,
o u,Ġt o,i t,Ġ h,he r,Ġh e,Ġ c,e d,Ġi s,l o,H e,He l,Hel lo,Ġw or,l d,Ġwor ld""".replace("\n", "").split(",")

PIECES = """▁t,he,in,er,an,on,re,▁the,▁a,en,or,at,▁o,es,▁s,is,▁w,▁of,ing,▁an,▁and,▁i,▁in,al,ll,ou,▁to,it,▁h,her,▁he,▁c,ed,▁is,
lo,He,Hel,Hello,▁wor,ld,▁world""".replace("\n", "").split(",")
LETTERS = "▁etaoinshrdlucmfwypvbgkqjxzETAOINSHRDLUCMFWYPVBGKQJXZ0123456789.,!?'\"-:;()éü你好"


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer as a GGUF holds it."""

    model: str  # gpt2 or llama
    pre: str
    tokens: tuple[str, ...]
    types: tuple[int, ...]
    scores: tuple[float, ...]
    merges: tuple[str, ...]
    bos: int
    eos: int
    unknown: int
    padding: int
    add_bos: bool

    def add_to(self, writer: Any) -> None:
        """Writes the keys of the tokenizer."""
        writer.add_tokenizer_model(self.model)
        writer.add_tokenizer_pre(self.pre)
        writer.add_token_list(list(self.tokens))
        writer.add_token_types(list(self.types))
        if self.scores:
            writer.add_token_scores(list(self.scores))
        if self.merges:
            writer.add_token_merges(list(self.merges))
        writer.add_bos_token_id(self.bos)
        writer.add_eos_token_id(self.eos)
        writer.add_unk_token_id(self.unknown)
        writer.add_pad_token_id(self.padding)
        writer.add_add_bos_token(self.add_bos)
        writer.add_add_eos_token(False)
        writer.add_add_space_prefix(False)


def _byte_letters() -> list[str]:
    """The letter that stands for each byte in byte-level BPE (GPT-2's table): printable ones for themselves."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters, others = [""] * 256, 0
    for byte in range(256):
        if byte in printable:
            letters[byte] = chr(byte)
        else:
            letters[byte] = chr(256 + others)
            others += 1
    return letters


def _byte_level() -> Vocabulary:
    """Like SmolLM2: three control tokens, 256 bytes, merges."""
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens = control + _byte_letters() + [merge.replace(" ", "") for merge in MERGES]
    assert len(set(tokens)) == len(tokens)
    types = [CONTROL] * len(control) + [NORMAL] * (len(tokens) - len(control))
    return Vocabulary("gpt2", "smollm", tuple(tokens), tuple(types), (), tuple(MERGES), 1, 2, 0, 2, add_bos=False)


def _sentence_piece() -> Vocabulary:
    """Like Gemma: <pad> <eos> <bos> <unk>, 256 byte tokens, pieces by score, letters last."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    tokens = special + [f"<0x{byte:02X}>" for byte in range(256)] + PIECES + list(LETTERS)
    assert len(set(tokens)) == len(tokens)
    types = [CONTROL, CONTROL, CONTROL, UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(PIECES) + len(LETTERS))
    # Like the published file: 0 for the special ones, then falling; a merge of higher score is taken first.
    scores = [0.0] * (len(special) + 256) + [-float(rank) for rank in range(len(PIECES) + len(LETTERS))]
    return Vocabulary("llama", "default", tuple(tokens), tuple(types), tuple(scores), (), 2, 1, 3, 0, add_bos=True)


BYTE_LEVEL = _byte_level()
SENTENCE_PIECE = _sentence_piece()
