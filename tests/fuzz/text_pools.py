"""Texts that tokenizers and templates stumble over. Owns: the pools, a way to draw from them. Needs: nothing."""

from __future__ import annotations

from random import Random

TEXTS = (
    "",
    "Hello world, the cat's 1234 \u00e9\u4f60\U0001f600",
    "aaaa" * 20,
    " \n\t\r\n  ",
    "<|im_start|>user\n<eos><unk>",
    "\0\x1b\u2028",
)
PARTS = (
    "Hello", " world", "the", " a", " ", "  ", "\n", "\r\n", "\t", "'s", "'LL", "1", "12345", "\u00e9", "e\u0301",
    "\u4f60\u597d", "\U0001f600", "\u200d", "\ufe0f", "\u0627\u0644", "\u0e01\u0e33", "\0", "\x1b[2J", "\x7f", "\u2028",
    "\u202e", "\ufeff", "\ufffd", "\ud800", "\udcff", "\udfff", "\U0010ffff", "\U0010f000", "\U0010f001", "\u2581",
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<eos>", "<bos>", "<unk>", "<pad>", "<start_of_turn>", "<|im_",
    "start|>", "<0x0A>", "<", "|>", "</think>", "{{ 1 }}", "{% raw %}", "&lt;", "$", "~", "%s", "\u0130", "\u1e9e",
    "\ufb01",
)  # fmt: skip


def draw_text(random: Random) -> str:
    """A text of some of the parts, of one part many times, or of any characters."""
    match random.randrange(8):
        case 0:
            return random.choice(PARTS) * random.choice((1, 100, 3000))
        case 1:
            return "".join(map(chr, random.choices(range(0x110000), k=random.randrange(40))))
        case 2:
            return "".join(map(chr, random.choices(range(0x250), k=random.randrange(60))))
        case _:
            return "".join(random.choices(PARTS, k=random.randrange(12)))
