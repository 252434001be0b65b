"""`--prefix`: a baked prefix as commands use it. Owns: what is said of it. Needs: baked, conversation. Never: pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge.baked.header import BAKE_COMMAND
from edge.cli.conversation import ChatPrefix, Computed
from edge.errors import RequestError

if TYPE_CHECKING:
    from edge.baked.prefix import BakedPrefix
    from edge.text.rendered import RenderedChat
    from edge.text.tokenizer import Tokenizer


def chat_prefix(prefix: BakedPrefix) -> ChatPrefix:
    """Its text and ids, which a conversation begins with."""
    return ChatPrefix(prefix.path.stem, Computed(tuple(prefix.token_ids), prefix.header.text))


def prefix_system(prefix: BakedPrefix, asked: str | None) -> str:
    """The system message that it was baked with. RequestError where another one is asked for."""
    baked = prefix.header.system
    if asked is not None and asked != baked:
        was = "without a system message" if not baked else "with another system message"
        another = "bake another: edge bake PACKAGE --name NAME --system TEXT"
        raise RequestError(f"--prefix {prefix.path.stem} was baked {was}. Leave --system out, or {another}")
    return baked


def prefix_ids(prefix: BakedPrefix, tokenizer: Tokenizer, chat: RenderedChat) -> list[int]:
    """Ids of a rendered chat that begins with the prefix; only what follows it is tokenised. RequestError where it does not."""
    text = prefix.header.text
    if not chat.text.startswith(text) or len(chat.text) == len(text):
        raise RequestError(
            f"--prefix {prefix.path.stem}: this chat template writes a chat otherwise than when it was baked. Use it as "
            f"it was, or bake it again: {BAKE_COMMAND}"
        )
    return [*prefix.token_ids, *tokenizer.encode_chat(chat, start=len(text))]


def isa_note(prefix: BakedPrefix, isa: str) -> str | None:
    """What to say where another instruction set computed the pages than the one that goes on."""
    baked = prefix.header.engine.isa
    if baked == isa:
        return None
    return (
        f"edge: the prefix {prefix.path.stem} was computed with {baked}, this runs {isa}: answers may differ slightly from "
        "those without it"
    )
