"""What a table of `edge bench kv` says of policies, in words. Owns: the sentences. Needs: the choice. Never: decides."""

from __future__ import annotations

from textwrap import fill

from edge.bench.kv import KvFigures
from edge.bench.kv_choice import CONTROL, Against, PolicyChoice, PresetChoice
from edge.pages.geometry import pages_for
from edge.policies import RAISED_SHARES, PolicyName
from edge.presets import PresetName

_COLUMNS = 80


def folded(line: str) -> str:
    """A line of any length for a terminal."""
    return fill(line, _COLUMNS, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def choice_lines(choice: PolicyChoice, figures: KvFigures) -> list[str]:
    """A sentence a preset, then the default and why."""
    losses = {(row.form.preset, row.form.policy): row.kl_mean for row in figures.forms}
    lines = []
    for each in choice.presets:
        lines += [_unraised_line(each, figures.load.context)] if each.unraised else []
        lines += [_preset_line(each, losses)] if each.raised else []
    if any(each.raised for each in choice.presets):
        lines.append(_default_line(choice))
    return lines


def _unraised_line(found: PresetChoice, context: int) -> str:
    pages, share = pages_for(context), max(RAISED_SHARES[policy] for policy in found.unraised)
    why = (
        f"too short, {100 * share:.0f} % of {pages} pages is none" if int(share * pages) == 0 else "these texts give them none"
    )
    return f"{found.preset}: no page raised by {', '.join(found.unraised)}: {why}"


def _preset_line(found: PresetChoice, losses: dict[tuple[PresetName, PolicyName], float]) -> str:
    name = found.preset
    if CONTROL in found.unraised:
        return f"{name}: `{CONTROL}` raised no page, so nothing stands at equal bytes"
    if CONTROL not in found.same_bytes:
        return f"{name}: without `{CONTROL}` nothing stands at equal bytes (--policies)"
    parts = []
    if found.best is None:
        parts.append("no policy at the bytes of random pages")
    else:
        control = found.pair(found.best, CONTROL)
        parts.append(
            f"at equal bytes {found.best} loses least, KL {losses[name, found.best]:.5f}, random pages "
            f"{losses[name, CONTROL]:.5f}: {_verdict(control)}"
        )
        parts.append(
            f"against uniform, {losses[name, 'uniform']:.5f} in fewer bytes: {_verdict(found.pair(found.best, 'uniform'))}"
        )
    if found.other_bytes:
        parts.append(f"other bytes: {', '.join(found.other_bytes)}")
    return f"{name}: {'; '.join(parts)}"


def _verdict(pair: Against) -> str:
    if pair.noise is None or pair.difference.error is None:
        return "too little text to tell"
    word = "less beyond noise" if pair.is_better else "more beyond noise" if pair.is_worse else "within noise"
    return f"{word} ({1000 * pair.difference.mean:+.2f} of {1000 * pair.noise:.2f} thousandths)"


def _default_line(choice: PolicyChoice) -> str:
    unpublished = f"; {', '.join(choice.unpublished)}: not in the prefix cache" if choice.unpublished else ""
    if choice.wins:
        why = f"it goes to the prefix cache and, at {', '.join(choice.wins)}, loses less than uniform and than random pages"
    else:
        why = "it takes the fewest bytes, and nothing that goes to the prefix cache loses less than it and than random pages"
    return f"default: {choice.default}, because {why}, beyond noise{unpublished}"
