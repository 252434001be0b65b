"""Figures of one form on long texts. Owns: FormFigures, ReadFigures, what a gate says, keys. Needs: kv_eval. Never: engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from edge.kv_eval.forms import Form
from edge.kv_eval.likeness import Likeness
from edge.kv_eval.noise import Paired
from edge.kv_eval.recall import Recall
from edge.presets import PresetName
from edge.stats import ReadCounts

if TYPE_CHECKING:
    from edge.manifest import Verdict

Outcome = Literal["passed", "unsure", "failed"]


@dataclass(frozen=True, slots=True)
class ReadFigures:
    """A preset whose answers read the pages of a budget."""

    preset: PresetName
    likeness: Likeness  # to `exact`, which reads all
    recall: Recall | None  # None: not asked for
    reads: ReadCounts

    @property
    def read_share(self) -> float | None:
        """Of the sealed pages, 0 to 1, that tokens read which were not to read all; None where all read all."""
        pages = self.reads.read + self.reads.skipped
        return self.reads.read / pages if pages else None

    def as_dict(self) -> dict[str, Any]:
        comparison, reads = self.likeness.comparison, self.reads
        return {
            "preset": self.preset,
            "kl_mean": comparison.kl_mean,
            "kl_max": comparison.kl_max,
            "top1": comparison.top1,
            "perplexity_ratio": comparison.perplexity_ratio,
            "decode_tokens_per_s": self.likeness.decode_rate,
            "tokens": reads.tokens,
            "pages_read": reads.read,
            "pages_skipped": reads.skipped,
            "probes": reads.probes,
            "omitted": reads.mean_omitted,
            **recall_dict(self.recall),
        }


@dataclass(frozen=True, slots=True)
class FormFigures:
    """One form at the end of a document."""

    form: Form
    likeness: Likeness
    verdict: Verdict | None  # by the gate of the preset; None: `exact`, which the others are held against
    recall: Recall | None  # None: not asked for
    exact_recall: Recall | None
    table_bytes: int
    pool_bytes: int  # as the runtime allocates it for this context: pages, slack, and what sealing needs beside them
    open_bytes: int  # fp16 pages of all layers and tokens

    @property
    def held_bytes(self) -> int:
        """Pages and their table at the end of a document."""
        return sum(self.likeness.kv_bytes.values()) + self.table_bytes

    @property
    def smaller(self) -> float:
        """Times that fp16 pages of all layers are larger than what stands."""
        return self.open_bytes / self.held_bytes

    @property
    def kl_mean(self) -> float:
        return 0.0 if self.verdict is None else self.likeness.comparison.kl_mean

    @property
    def needles(self) -> Paired | None:
        """Those that `exact` alone found, and those that this one alone found; None where none were asked."""
        if self.verdict is None or self.recall is None or self.exact_recall is None:
            return None
        return self.recall.needles_against(self.exact_recall)

    @property
    def outcome(self) -> Outcome | None:
        """The gate: likeness, and as many needles as `exact`. "unsure" where fewer needles are what chance explains. None for
        `exact`."""
        if self.verdict is None:
            return None
        if not self.verdict.passed or (self.needles is not None and self.needles.is_loss):
            return "failed"
        return "unsure" if self.needles is not None and self.needles.lost > self.needles.gained else "passed"

    @property
    def broken(self) -> tuple[str, ...]:
        """What is beyond its limit, in words."""
        if self.verdict is None:
            return ()
        found = self.verdict.broken
        if self.needles is not None and self.needles.lost > self.needles.gained:
            found = (*found, self._fewer(self.needles))
        return found

    def _fewer(self, needles: Paired) -> str:
        assert self.recall is not None and self.exact_recall is not None
        fewer = f"needles {self.recall.needles[0]} of at least {self.exact_recall.needles[0]}"
        what = "more than chance" if needles.is_loss else "no more than chance"
        return f"{fewer}: {needles.lost} lost, {needles.gained} gained, {what} (p {needles.chance:.2g})"

    def as_dict(self) -> dict[str, Any]:
        comparison, is_exact = self.likeness.comparison, self.verdict is None
        row: dict[str, Any] = {
            "form": self.form.name,
            "preset": self.form.preset,
            "policy": self.form.policy,
            "kv_bytes": self.held_bytes,
            "kv_bytes_by_format": self.likeness.kv_bytes,
            "kv_table_bytes": self.table_bytes,
            "kv_pool_bytes": self.pool_bytes,
            "kv_open_bytes": self.open_bytes,
            "smaller": self.smaller,
            "pool_smaller": self.open_bytes / (self.pool_bytes + self.table_bytes),
            "prefill_tokens_per_s": self.likeness.prefill_rate,
            "decode_tokens_per_s": self.likeness.decode_rate,
            "kl_mean": self.kl_mean,
            "kl_max": 0.0 if is_exact else comparison.kl_max,
            "top1": 1.0 if is_exact else comparison.top1,
            "perplexity_ratio": 1.0 if is_exact else comparison.perplexity_ratio,
            "perplexity": None if is_exact else comparison.tested_perplexity,
            "gate": self.outcome,
            "broken": list(self.broken),
            **recall_dict(self.recall),
        }
        if self.needles is not None:
            row |= {"lost": self.needles.lost, "gained": self.needles.gained, "chance": self.needles.chance}
        return row


def recall_dict(recall: Recall | None) -> dict[str, Any]:
    """Right and asked by kind, and each answer in the order of the questions; nothing where none were asked."""
    if recall is None:
        return {}
    counts = {kind: recall.counts(kind) for kind in recall.kinds}
    return {
        "right": {kind: right for kind, (right, _) in counts.items()},
        "asked": {kind: asked for kind, (_, asked) in counts.items()},
        "answers": recall.right,
    }
