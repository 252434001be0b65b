"""KV forms of a package on long texts. Owns: the order of the measurement, the keys of its figures. Needs: kv_eval, gates.
Never: a terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edge.bench.kv_choice import PolicyChoice, choose_policy
from edge.bench.kv_estimate import estimate_seconds
from edge.bench.kv_rows import FormFigures, ReadFigures
from edge.comparison import Comparison
from edge.config import InferenceConfig
from edge.kv_eval.fed_sequence import FLOOR, FedSequence, open_sequences, reading_forms, reading_name
from edge.kv_eval.forms import Form, forms_of
from edge.kv_eval.haystacks import Haystack
from edge.kv_eval.likeness import Likeness, run_document
from edge.kv_eval.recall import Recall, make_haystacks
from edge.kv_eval.texts import Text
from edge.pages.budget import plan_pool
from edge.pages.geometry import pages_for, table_bytes
from edge.pages.read_budget import ReadAll, ReadBudget
from edge.policies import PolicyName
from edge.preset_gates import judge_preset
from edge.presets import PresetName
from edge.units import human_seconds

if TYPE_CHECKING:
    from edge.executors.native import NativeExecutor
    from edge.package import Package
    from edge.progress import Progress
    from edge.spec import ModelSpec
    from edge.text.tokenizer import Tokenizer

SINGLY = 32  # tokens of each document that are decoded one by one
LEAST_CLAIM = 2000  # positions compared below which a gate's outcome is no claim
_LONG = 600.0  # seconds of a run whose estimate says what makes it shorter


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
    policies: tuple[PolicyName, ...] = ()  # that each preset that seals has beside itself

    @property
    def forms(self) -> tuple[Form, ...]:
        return forms_of(self.presets, self.policies)


@dataclass(frozen=True, slots=True)
class KvFigures:
    load: KvLoad
    documents: tuple[str, ...]  # the text of each
    rows: int  # positions compared, all documents together
    isa: str
    floor: Comparison  # pages as exact as `exact`, changed by the least there is
    forms: tuple[FormFigures, ...]
    reads: tuple[ReadFigures, ...] = ()  # with the read budget, where there is one
    too_short: tuple[str, ...] = ()  # texts that gave no document

    @property
    def is_claim(self) -> bool:
        """Whether enough was compared, over more than one document."""
        return self.rows >= LEAST_CLAIM and len(self.documents) > 1

    @property
    def choice(self) -> PolicyChoice | None:
        """None where `uniform` alone was measured."""
        return choose_policy(self.forms, self.floor)

    def as_dict(self) -> dict[str, Any]:
        exact = next(row for row in self.forms if row.verdict is None)
        asked = [] if exact.recall is None else exact.recall.asked
        return {
            "context": self.load.context,
            "documents": list(self.documents),
            "too_short": list(self.too_short),
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
            "forms": [row.as_dict() for row in self.forms],
            "questions": [
                {"kind": each.kind, "tokens": each.tokens, "depths": list(each.depths), "prefix": each.prefix} for each in asked
            ],
            "choice": None if self.choice is None else self.choice.as_dict(),
            "read_budget": str(self.load.budget),
            "reads": [row.as_dict() for row in self.reads],
        }


def measure_kv(
    package: Package,
    load: KvLoad,
    texts: Sequence[Text],
    progress: Progress,
    say: Callable[[str], None],
    *,
    threads: int | None = None,
    isa: str = "auto",
) -> KvFigures:
    """Runs `texts` through the engine of `package` under each form of `load`. RequestError where no text is long enough. `say`
    is told before how long it takes, and which texts are too short.

    The documents that are compared are those in which needles are, so that each is computed once a form.
    """
    tokenizer, forms = package.open_tokenizer(), load.forms
    progress.start("cutting documents", 0, "documents")
    haystacks = make_haystacks(tokenizer, texts, load.context, load.documents, load.tokens, load.needles, load.seed)
    whole = [haystack for haystack in haystacks if haystack.rows]
    short = texts_too_short([text.name for text in texts], [haystack.document.text for haystack in whole], load.documents)
    progress.start("timing the presets", 0, "presets")
    with open_sequences(
        package.path / "engine", package.spec, forms, load.context, budget=load.budget, threads=threads, isa=isa
    ) as sequences:
        engine = _engine(sequences)
        used_isa = engine.isa
        seconds = estimate_seconds(sequences, forms, haystacks, SINGLY, engine.pool)
        progress.done()
        if short:
            say(f"too short for {load.context:,} tokens, left out: {', '.join(short)}")
        say(
            estimate_line(len(forms) + len(reading_forms(forms, load.budget)), len(whole), len(haystacks) - len(whole), seconds)
        )
        likeness, recall = _run(sequences, tokenizer, haystacks, progress)
        reads = {form.preset: sequences[reading_name(form.preset)].reads for form in reading_forms(forms, load.budget)}
    return KvFigures(
        load,
        tuple(haystack.document.text for haystack in whole),
        sum(haystack.rows for haystack in whole),
        used_isa,
        likeness[FLOOR].comparison,
        _figures(package.spec, load, whole, likeness, recall),
        tuple(
            ReadFigures(preset, likeness[name], recall.get(name), counts)
            for preset, counts in reads.items()
            for name in (reading_name(preset),)
        ),
        short,
    )


def texts_too_short(names: Sequence[str], documents: Sequence[str], most: int) -> tuple[str, ...]:
    """Of the texts `names`, those that are shorter than a document; `documents` are the texts of those that were cut, up to
    `most`. Each text gives one before any gives a second, so what gave none is too short unless all were given away before."""
    if len(documents) == most and len(set(documents)) == most:
        return ()
    return tuple(name for name in names if name not in documents)


def estimate_line(forms: int, whole: int, shorter: int, seconds: float) -> str:
    """What will run, how long, and, where that is long, what makes it shorter."""
    documents = f"{whole} document{'s' if whole > 1 else ''}"
    more = f" and {shorter} shorter {'ones' if shorter > 1 else 'one'} for needles" if shorter else ""
    hint = ". Less to measure: --presets, --policies, --documents" if seconds > _LONG else ""
    return f"{forms} forms, {documents}{more}, about {human_seconds(seconds)}{hint}"


def _run(
    sequences: Mapping[str, FedSequence],
    tokenizer: Tokenizer,
    haystacks: Sequence[Haystack],
    progress: Progress,
) -> tuple[dict[str, Likeness], dict[str, Recall]]:
    """By sequence: all documents; questions of all but FLOOR, {} without any."""
    likeness = {name: Likeness() for name in sequences}
    asked = {name: sequence for name, sequence in sequences.items() if name != FLOOR}
    recall = {name: Recall() for name in asked if any(haystack.cases for haystack in haystacks)}
    running = [sequences if haystack.rows else asked for haystack in haystacks]
    tokens = sum(len(haystack.document.ids) * len(running[number]) for number, haystack in enumerate(haystacks))
    progress.start("measuring", tokens, "tokens")
    for number, haystack in enumerate(haystacks):

        def ask(name: str, sequence: FedSequence, haystack: Haystack = haystack) -> None:
            if name in recall:
                recall[name].ask(sequence, tokenizer, haystack)

        singly, stop = min(SINGLY, haystack.rows), haystack.stop
        run_document(running[number], likeness, number, haystack.document, haystack.rows, singly, progress, stop, ask)
    progress.done()
    return likeness, recall


def _engine(sequences: Mapping[str, FedSequence]) -> NativeExecutor:
    from edge.executors.native import NativeExecutor

    executor = next(iter(sequences.values())).executor
    assert isinstance(executor, NativeExecutor), "bench opens CPU packages only"
    return executor


def _figures(
    spec: ModelSpec,
    load: KvLoad,
    documents: Sequence[Haystack],
    likeness: Mapping[str, Likeness],
    recall: Mapping[str, Recall],
) -> tuple[FormFigures, ...]:
    config, context = InferenceConfig.load(), load.context
    names = ", ".join(dict.fromkeys(haystack.document.text for haystack in documents))
    rows = []
    for form in load.forms:
        groups, found = form.groups(spec), likeness[form.name]
        verdict = None
        if form.preset != "exact":
            floor = likeness[FLOOR].comparison
            verdict = judge_preset(
                form.preset, found.comparison, floor, text=names, windows=len(documents), window_tokens=context
            )
        rows.append(
            FormFigures(
                form=form,
                likeness=found,
                verdict=verdict,
                recall=recall.get(form.name),
                exact_recall=recall.get("exact"),
                table_bytes=table_bytes(groups, pages_for(context)),
                pool_bytes=plan_pool(groups, context, 1, config).pool_bytes,
                open_bytes=sum(pages_for(context) * group.open.bytes for group in groups),
            )
        )
    return tuple(rows)
