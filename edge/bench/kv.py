"""Presets of a package on long texts. Owns: the order of the measurement, the keys of its figures. Needs: kv_eval, gates.
Never: a terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edge.comparison import Comparison
from edge.config import InferenceConfig
from edge.kv_eval.fed_sequence import FLOOR, FedSequence, open_sequences, reading_name, reading_presets
from edge.kv_eval.likeness import Likeness, measure_likeness
from edge.kv_eval.recall import RecallCounts, make_haystacks, measure_recall
from edge.kv_eval.texts import Document, Text, cut_documents
from edge.pages.budget import plan_pool
from edge.pages.geometry import page_groups, pages_for, table_bytes
from edge.pages.read_budget import ReadAll, ReadBudget
from edge.preset_gates import judge_preset
from edge.presets import PRESETS, PresetName
from edge.stats import ReadCounts

if TYPE_CHECKING:
    from edge.manifest import Verdict
    from edge.package import Package
    from edge.progress import Progress
    from edge.spec import ModelSpec

SINGLY = 32  # tokens of each document that are decoded one by one
LEAST_CLAIM = 2000  # positions compared below which a gate's outcome is no claim


@dataclass(frozen=True, slots=True)
class KvLoad:
    """What is measured."""

    context: int  # tokens of a document
    presets: tuple[PresetName, ...]  # `exact` first
    documents: int  # at most
    tokens: int  # positions compared, all documents together
    needles: int
    seed: int
    budget: ReadBudget = field(default_factory=ReadAll)  # presets that seal run once more with it


@dataclass(frozen=True, slots=True)
class ReadFigures:
    """A preset whose answers read the pages of a budget."""

    preset: PresetName
    likeness: Likeness  # to `exact`, which reads all
    recall: RecallCounts | None  # None: not asked for
    reads: ReadCounts

    @property
    def read_share(self) -> float | None:
        """Of the sealed pages, 0 to 1, that tokens read which were not to read all; None where all read all."""
        pages = self.reads.read + self.reads.skipped
        return self.reads.read / pages if pages else None

    def as_dict(self) -> dict[str, Any]:
        comparison, reads = self.likeness.comparison, self.reads
        row: dict[str, Any] = {
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
        }
        if self.recall is not None:
            row["right"] = dict(sorted((kind, self.recall.right[kind]) for kind in self.recall.asked))
            row["asked"] = dict(sorted(self.recall.asked.items()))
        return row


@dataclass(frozen=True, slots=True)
class PresetFigures:
    """One preset at the end of `context` tokens."""

    preset: PresetName
    likeness: Likeness
    verdict: Verdict | None  # None: `exact`, which the others are held against
    recall: RecallCounts | None  # None: not asked for
    exact_recall: RecallCounts | None
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
    def finds_all(self) -> bool | None:
        """Whether it finds as many needles as `exact`; None where none were asked."""
        if self.recall is None or self.exact_recall is None:
            return None
        return self.recall.needles[0] >= self.exact_recall.needles[0]

    @property
    def passed(self) -> bool | None:
        """The gate: likeness and needles. None for `exact`."""
        return None if self.verdict is None else self.verdict.passed and self.finds_all is not False

    @property
    def broken(self) -> tuple[str, ...]:
        """What is beyond its limit, in words."""
        if self.verdict is None:
            return ()
        found = self.verdict.broken
        if self.finds_all is False:
            assert self.recall is not None and self.exact_recall is not None
            found = (*found, f"needles {self.recall.needles[0]} of at least {self.exact_recall.needles[0]}")
        return found

    def as_dict(self) -> dict[str, Any]:
        comparison, is_exact = self.likeness.comparison, self.verdict is None
        row: dict[str, Any] = {
            "preset": self.preset,
            "kv_bytes": self.held_bytes,
            "kv_bytes_by_format": self.likeness.kv_bytes,
            "kv_table_bytes": self.table_bytes,
            "kv_pool_bytes": self.pool_bytes,
            "kv_open_bytes": self.open_bytes,
            "smaller": self.smaller,
            "pool_smaller": self.open_bytes / (self.pool_bytes + self.table_bytes),
            "prefill_tokens_per_s": self.likeness.prefill_rate,
            "decode_tokens_per_s": self.likeness.decode_rate,
            "kl_mean": 0.0 if is_exact else comparison.kl_mean,
            "kl_max": 0.0 if is_exact else comparison.kl_max,
            "top1": 1.0 if is_exact else comparison.top1,
            "perplexity_ratio": 1.0 if is_exact else comparison.perplexity_ratio,
            "perplexity": None if is_exact else comparison.tested_perplexity,
            "gate": None if self.passed is None else ("passed" if self.passed else "failed"),
            "broken": list(self.broken),
        }
        if self.recall is not None:
            row["right"] = dict(sorted((kind, self.recall.right[kind]) for kind in self.recall.asked))
            row["asked"] = dict(sorted(self.recall.asked.items()))
        return row


@dataclass(frozen=True, slots=True)
class KvFigures:
    load: KvLoad
    documents: tuple[str, ...]  # the text of each
    rows: int  # positions compared, all documents together
    isa: str
    floor: Comparison  # pages as exact as `exact`, changed by the least there is
    presets: tuple[PresetFigures, ...]
    reads: tuple[ReadFigures, ...] = ()  # with the read budget, where there is one

    @property
    def is_claim(self) -> bool:
        """Whether enough was compared, over more than one document."""
        return self.rows >= LEAST_CLAIM and len(self.documents) > 1

    def as_dict(self) -> dict[str, Any]:
        return {
            "context": self.load.context,
            "documents": list(self.documents),
            "tokens_compared": self.rows,
            "is_claim": self.is_claim,
            "needles": self.load.needles,
            "seed": self.load.seed,
            "isa": self.isa,
            "floor": {
                "kl_mean": self.floor.kl_mean,
                "kl_max": self.floor.kl_max,
                "top1": self.floor.top1,
                "perplexity_ratio": self.floor.perplexity_ratio,
            },
            "presets": [row.as_dict() for row in self.presets],
            "read_budget": str(self.load.budget),
            "reads": [row.as_dict() for row in self.reads],
        }


def measure_kv(
    package: Package, load: KvLoad, texts: Sequence[Text], progress: Progress, *, threads: int | None = None, isa: str = "auto"
) -> KvFigures:
    """Runs `texts` through the engine of `package` under each preset of `load`. RequestError where no text is long enough."""
    tokenizer = package.open_tokenizer()
    documents = cut_documents(tokenizer, texts, load.context, load.documents)
    haystacks = make_haystacks(tokenizer, texts, load.context, load.needles, load.seed) if load.needles else ()
    rows = min(-(-load.tokens // len(documents)), load.context)
    with open_sequences(
        package.path / "engine", package.spec, load.presets, load.context, budget=load.budget, threads=threads, isa=isa
    ) as sequences:
        likeness = measure_likeness(sequences, documents, rows, min(SINGLY, rows), progress)
        reads = {preset: sequences[reading_name(preset)].reads for preset in reading_presets(load.presets, load.budget)}
        recall = measure_recall(sequences, tokenizer, haystacks, progress) if haystacks else None
        used_isa = _isa(sequences)
    figures = _figures(package.spec, load, documents, likeness, recall)
    return KvFigures(
        load,
        tuple(document.text for document in documents),
        rows * len(documents),
        used_isa,
        likeness[FLOOR].comparison,
        figures,
        tuple(
            ReadFigures(preset, likeness[name], None if recall is None else recall[name], counts)
            for preset, counts in reads.items()
            for name in (reading_name(preset),)
        ),
    )


def _isa(sequences: Mapping[str, FedSequence]) -> str:
    from edge.executors.native import NativeExecutor

    executor = next(iter(sequences.values())).executor
    assert isinstance(executor, NativeExecutor), "bench opens CPU packages only"
    return executor.isa


def _figures(
    spec: ModelSpec,
    load: KvLoad,
    documents: Sequence[Document],
    likeness: Mapping[str, Likeness],
    recall: Mapping[str, RecallCounts] | None,
) -> tuple[PresetFigures, ...]:
    config, context = InferenceConfig.load(), load.context
    names = ", ".join(dict.fromkeys(document.text for document in documents))
    rows = []
    for preset in load.presets:
        groups, found = page_groups(spec, PRESETS[preset]), likeness[preset]
        verdict = None
        if preset != "exact":
            floor = likeness[FLOOR].comparison
            verdict = judge_preset(preset, found.comparison, floor, text=names, windows=len(documents), window_tokens=context)
        rows.append(
            PresetFigures(
                preset=preset,
                likeness=found,
                verdict=verdict,
                recall=None if recall is None else recall[preset],
                exact_recall=None if recall is None else recall["exact"],
                table_bytes=table_bytes(groups, pages_for(context)),
                pool_bytes=plan_pool(groups, context, 1, config).pool_bytes,
                open_bytes=sum(pages_for(context) * group.open.bytes for group in groups),
            )
        )
    return tuple(rows)
