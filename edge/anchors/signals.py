"""What tells an anchor. Owns: the names of signals and their bits. Needs: nothing. Never: detection."""

from __future__ import annotations

# In the order in which they are shown; bit i of a mask is signal i.
MARKDOWN, HTML, TURN, NUMBERING, WORDING, TITLE, PAGE, STATISTICS = range(8)
SIGNALS = ("markdown", "html", "turn", "numbering", "wording", "title", "page", "statistics")
# Marks structure the text inside of a section and begin none.
MARKS = ("list", "fence", "block")
DEEPEST = 7  # level of what stands below every heading: pages and topic breaks; headings have 1 to 6


def signal_names(mask: int) -> tuple[str, ...]:
    """The names of the bits of a mask."""
    return tuple(name for bit, name in enumerate(SIGNALS) if mask >> bit & 1)
