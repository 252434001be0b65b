"""Figures of `edge bench kv` for a terminal of 80 columns. Owns: the tables. Needs: figures. Never: measures."""

from __future__ import annotations

from edge.bench.kv import LEAST_CLAIM, KvFigures
from edge.bench.kv_choice import CONTROL
from edge.bench.kv_rows import FormFigures
from edge.cli.kv_words import choice_lines, folded
from edge.cli.screen import shown
from edge.cli.tables import format_table
from edge.comparison import Comparison
from edge.kv_eval.recall import Recall
from edge.units import human_bytes

_GATES = {None: "", "passed": "passed", "unsure": "unsure", "failed": "FAILED"}


def kv_tables(figures: KvFigures) -> str:
    """One table with a line a form, policies under their preset; what failed and which policy is best are said below."""
    parts = [_sources(figures), _forms(figures)]
    exact = figures.forms[0].recall
    if exact is not None:
        parts.append(folded(_where(exact)))
    if figures.reads:
        parts.append(_reads(figures))
    for word, rows in (("failed its gate", "failed"), ("may have kept its gate, too few needles tell", "unsure")):
        found = [row for row in figures.forms if row.outcome == rows]
        parts += ["\n".join(["\n    ".join([f"{row.form.name} {word}:", *row.broken]) for row in found])] if found else []
    choice = figures.choice
    if choice is not None:
        parts.append("\n".join(map(folded, choice_lines(choice, figures))))
    if not figures.is_claim:
        parts.append(f"Too little for a claim: {LEAST_CLAIM:,} positions of several documents (--tokens, --text)")
    return "\n\n".join(parts)


def _sources(figures: KvFigures) -> str:
    names = {name: figures.documents.count(name) for name in figures.documents}
    texts = ", ".join(f"{count} of {name}" for name, count in names.items())
    lines = [f"documents of {figures.load.context:,} tokens: {texts}"]
    if figures.too_short:
        lines.append(f"too short, left out: {', '.join(figures.too_short)}")
    lines.append(f"{figures.rows:,} positions compared at their ends, kernels {figures.isa}")
    if figures.rows < figures.load.tokens:
        lines.append(f"fewer than --tokens {figures.load.tokens:,}: at most a quarter of each document is compared")
    return shown("\n".join(map(folded, lines)))


def _forms(figures: KvFigures) -> str:
    asked = figures.forms[0].recall is not None
    rows = [["", "MB", "less", "tok/s", "KL", "top-1", *(["needles", "-/+", "chains"] if asked else []), "gate"]]
    for row in figures.forms:
        rows.append(_form_row(row))
        if row.verdict is None:
            rows.append([" floor", "", "", "", *_likeness(figures.floor), *(["", "", ""] if asked else []), ""])
    whole = human_bytes(figures.forms[0].open_bytes)
    notes = [
        f"MB: pages and their table at a document's end, and how often they go into {whole} of fp16. tok/s: decode there. "
        "KL, top-1: against exact. floor: exact, last bits of fp16 flipped where presets seal; gates count from it. "
        "gate: whether likeness and needles keep the limits of the preset.",
    ]
    if asked:
        notes.append("-/+: needles that exact alone found, and that this one alone found.")
        notes.append("chains: facts of several places combined.")
    if any(row.form.policy == CONTROL for row in figures.forms):
        notes.append(f"Equal bytes: those of {CONTROL}, which raises as many pages, wherever they lie.")
    return f"{format_table(rows, right=frozenset(range(1, len(rows[0]) - 1)))}\n{folded(' '.join(notes))}"


def _form_row(row: FormFigures) -> list[str]:
    likeness = ["0", "1"] if row.verdict is None else _likeness(row.likeness.comparison)
    recall: list[str] = []
    if row.recall is not None:
        pairs = "" if row.needles is None else f"-{row.needles.lost}+{row.needles.gained}"
        recall = [_share(row.recall.needles), pairs, _share(row.recall.chains)]
    name = row.form.preset if row.form.policy == "uniform" else f" {row.form.policy}"
    size, rate = _mega(row.held_bytes), _rate(row.likeness.decode_rate)
    return [name, size, f"{row.smaller:.2f}x", rate, *likeness, *recall, _GATES[row.outcome]]


def _where(exact: Recall) -> str:
    """Needles of `exact` by length of the prompt and by depth, so that one sees what the model itself can do."""
    by_tokens = [f"{_share(exact.needles_where(tokens=tokens))} at {tokens:,} tokens" for tokens in exact.lengths]
    fifths = [_share(exact.needles_where(depth=(fifth / 5, (fifth + 1) / 5))) for fifth in range(5)]
    return f"exact finds {', '.join(by_tokens)}; by depth, in fifths, {' '.join(fifths)}"


def _reads(figures: KvFigures) -> str:
    asked = figures.reads[0].recall is not None
    rows = [["fewer pages", "KL", "top-1", *(["needles", "chains"] if asked else []), "read", "omitted", "decode"]]
    for row in figures.reads:
        found, share, omitted = row.likeness.comparison, row.read_share, row.reads.mean_omitted
        recall = [] if row.recall is None else [_share(row.recall.needles), _share(row.recall.chains)]
        pages = "all" if share is None else f"{100 * share:.0f} %"
        left_out = "" if omitted is None else f"{100 * omitted:.1f} %"
        decode = _rate(row.likeness.decode_rate)
        rows.append([row.preset, f"{found.kl_mean:.5f}", f"{found.top1:.4f}", *recall, pages, left_out, decode])
    note = f"--read-budget {figures.load.budget}: sealed pages read, attention left out"
    return f"{format_table(rows, right=frozenset(range(1, len(rows[0]))))}\n{note}"


def _likeness(found: Comparison) -> list[str]:
    return [f"{found.kl_mean:.5f}", f"{found.top1:.3f}"]


def _share(counts: tuple[int, int]) -> str:
    return f"{counts[0]}/{counts[1]}"


def _mega(size: int) -> str:
    mega = size / 1e6
    return f"{mega:.3f}" if mega < 0.05 else f"{mega:.1f}" if mega < 1000 else f"{mega:,.0f}"


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.1f}" if rate < 1000 else f"{rate:,.0f}"
