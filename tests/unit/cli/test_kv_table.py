"""The tables of `edge bench kv`."""

from __future__ import annotations

from dataclasses import replace

from edge.bench.kv import KvFigures, KvLoad, estimate_line, texts_too_short
from edge.bench.kv_rows import FormFigures, ReadFigures
from edge.cli.kv_table import kv_tables
from edge.comparison import Comparison
from edge.kv_eval.forms import Form
from edge.kv_eval.likeness import Likeness
from edge.kv_eval.recall import Asked, Recall
from edge.pages.read_budget import ReadAuto
from edge.policies import PolicyName
from edge.preset_gates import judge_preset
from edge.presets import PresetName
from edge.stats import ReadCounts

FLOOR = Comparison(2048, 6.0, 0.5, 1980, 2048, 5000.0, 5000.0)
HELD = {
    "exact": {"fp16": 1_188_743_680},
    "safe": {"fp16": 66_600_000, "int8": 348_000_000, "int4": 174_000_000},
    "balanced": {"fp16": 66_600_000, "int4": 348_000_000},
    "tight": {"fp16": 66_600_000, "int4": 174_000_000, "int2": 117_400_000},
}


ASKED = [Asked("needle", (8055, 3999, 1951)[number % 3], (number / 100,), "p") for number in range(100)]
ASKED += [Asked("moved", 8055, (0.1, 0.8), "q")] * 10


def recall(needles: int, moved: int = 9) -> Recall:
    """The first so many."""
    return Recall(ASKED, [number < needles for number in range(100)] + [number < moved for number in range(10)])


def row(preset: PresetName, kl: float, needles: int, policy: PolicyName = "uniform", spread: float = 0.0) -> FormFigures:
    """`spread`: what stretches of text differ by from each other."""
    comparison = Comparison(2048, kl * 2048, 1.5, 1980, 2048, 5000.0, 5001.0)
    exact = preset == "exact"
    parts = {(0, block): ((kl + spread * (-1) ** block) * 128, 128) for block in range(16)}
    held = {name: int(size * (1.0 if policy == "uniform" else 1.04)) for name, size in HELD[preset].items()}
    return FormFigures(
        form=Form(preset, policy),
        likeness=Likeness(Comparison() if exact else comparison, 7000, 3.0, [0.01, 0.02, 0.03], held, {} if exact else parts),
        verdict=None if exact else judge_preset(preset, comparison, FLOOR, text="t", windows=4, window_tokens=8192),
        recall=recall(needles),
        exact_recall=recall(97),
        table_bytes=10_240,
        pool_bytes=1_200_000_000,
        open_bytes=1_188_743_680,
    )


def figures(*rows: FormFigures, positions: int = 2048) -> KvFigures:
    presets = tuple(dict.fromkeys(row.form.preset for row in rows))
    load = KvLoad(8192, presets, 4, positions, 100, 0)
    return KvFigures(load, ("factbook", "licences", "factbook", "licences"), positions, "avx512_vnni", FLOOR, rows)


READS: tuple[tuple[PresetName, ReadCounts], ...] = (
    ("safe", ReadCounts(2000, 126_000, 374_000, 33, 0.9)),
    ("balanced", ReadCounts(probes=2, omitted=0.5)),
)
ALL = (row("exact", 0.0, 97), row("safe", 0.0035, 97), row("balanced", 0.05, 97), row("tight", 0.01, 90))


def test_lines_fit_a_terminal_of_80_columns() -> None:
    assert max(map(len, kv_tables(figures(*ALL)).splitlines())) <= 80


def test_reading_fewer_pages_is_a_table_of_its_own() -> None:
    reads = tuple(ReadFigures(name, ALL[1].likeness, ALL[1].recall, counts) for name, counts in READS)
    load = replace(figures(*ALL).load, budget=ReadAuto())
    shown = kv_tables(replace(figures(*ALL), load=load, reads=reads))
    assert max(map(len, shown.splitlines())) <= 80
    safe = next(line for line in shown.splitlines() if line.startswith("safe") and "25 %" in line).split()
    assert safe == ["safe", "0.00350", "0.9668", "97/100", "9/10", "25", "%", "2.7", "%", "50.0"]
    assert any(line.startswith("balanced") and " all " in line and "25.0 %" in line for line in shown.splitlines())
    assert "--read-budget auto" in shown and "fewer pages" not in kv_tables(figures(*ALL))


def test_what_failed_is_said_with_both_numbers() -> None:
    shown = kv_tables(figures(*ALL))
    assert "balanced failed its gate:\n    KL 0.05 of at most 0.00893" in shown
    assert "tight failed its gate:\n    needles 90 of at least 97: 7 lost, 0 gained, more than chance (p 0.0078)" in shown
    assert "safe failed" not in shown and "Too little" not in shown


def test_fewer_needles_that_chance_explains_are_neither_passed_nor_failed() -> None:
    lucky = replace(row("tight", 0.01, 97), recall=recall(98))
    shown = kv_tables(figures(ALL[0], row("safe", 0.0035, 96), lucky))
    assert "safe may have kept its gate, too few needles tell:\n    needles 96 of at least 97: 1 lost, 0 gained" in shown
    lines = {line.split()[0]: line for line in shown.splitlines() if line.startswith(("safe ", "tight "))}
    assert lines["tight"].endswith("98/100  -0+1    9/10  passed") and "96/100  -1+0" in shown and "  unsure" in shown


def test_the_floor_stands_beside_exact() -> None:
    lines = kv_tables(figures(*ALL)).splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("exact"))
    assert lines[at + 1].startswith(" floor") and "0.00293" in lines[at + 1]


def test_it_is_said_where_exact_itself_finds_needles() -> None:
    shown = " ".join(kv_tables(figures(*ALL)).split())
    assert "exact finds 32/33 at 1,951 tokens, 32/33 at 3,999 tokens, 33/34 at 8,055 tokens;" in shown
    assert "by depth, in fifths, 20/20 20/20 20/20 20/20 17/20" in shown


def test_little_text_is_no_claim() -> None:
    assert "Too little for a claim: 2,000 positions" in kv_tables(figures(*ALL, positions=500))


def with_policies(anchors: float, random: float, spread: float = 0.0) -> KvFigures:
    return figures(
        ALL[0],
        row("balanced", 0.006, 97),
        row("balanced", anchors, 97, "anchors", spread),
        row("balanced", random, 97, "random"),
    )


def said(of: KvFigures) -> str:
    shown = kv_tables(of)
    assert max(map(len, shown.splitlines())) <= 80
    return " ".join(shown.split())


def test_policies_stand_under_their_preset_and_uniform_is_the_default_where_nothing_beats_random_pages() -> None:
    shown = kv_tables(with_policies(0.0055, 0.0057))
    names = [line.split()[0] for line in shown.splitlines() if "97/100" in line]
    assert names == ["exact", "balanced", "anchors", "random"] and "\n anchors " in shown
    assert "at equal bytes anchors loses least, KL 0.00550, random pages 0.00570: within noise" in said(
        with_policies(0.0055, 0.0057)
    )
    assert "default: uniform, because it takes the fewest bytes, and nothing" in said(with_policies(0.0055, 0.0057))


def test_a_policy_that_beats_uniform_and_random_pages_beyond_noise_is_the_default() -> None:
    found = with_policies(0.0035, 0.0058)
    assert found.choice is not None and (found.choice.default, found.choice.wins) == ("anchors", ("balanced",))
    assert "default: anchors, because it goes to the prefix cache and, at balanced, loses less" in said(found)
    assert "less beyond noise (-2.30 of 0.86 thousandths)" in said(found)


def test_a_policy_that_wins_by_as_much_as_its_bytes_do_anywhere_is_not() -> None:
    assert "default: uniform" in said(with_policies(0.0035, 0.0034))


def test_what_differs_as_much_from_stretch_to_stretch_is_noise() -> None:
    found = with_policies(0.0035, 0.0058, spread=0.008)
    assert found.choice is not None and found.choice.default == "uniform"


def test_without_random_pages_nothing_stands_at_equal_bytes() -> None:
    found = figures(ALL[0], row("balanced", 0.006, 97), row("balanced", 0.001, 97, "anchors"))
    assert "without `random` nothing stands at equal bytes" in said(found) and "default: uniform" in said(found)


def test_what_is_not_published_is_never_the_default_however_good_it_is() -> None:
    rows = [row("balanced", kl, 97, policy) for kl, policy in ((0.006, "uniform"), (0.0031, "attention"), (0.0058, "random"))]  # type: ignore[arg-type]
    shown = said(figures(ALL[0], *rows))
    assert "attention loses least, KL 0.00310" in shown and "less beyond noise" in shown
    assert "default: uniform" in shown and "attention: not in the prefix cache" in shown


def test_without_policies_no_default_is_named() -> None:
    assert "default" not in kv_tables(figures(*ALL)) and figures(*ALL).as_dict()["choice"] is None


def test_json_has_every_question_and_every_answer() -> None:
    found = figures(*ALL).as_dict()
    assert len(found["questions"]) == 110 == len(found["forms"][1]["answers"])
    assert (found["forms"][3]["lost"], found["forms"][3]["gained"], found["forms"][3]["gate"]) == (7, 0, "failed")
    assert found["forms"][1]["right"] == {"moved": 9, "needle": 97}


def test_shorter_documents_are_told_apart_and_a_long_run_says_what_makes_it_shorter() -> None:
    assert estimate_line(16, 4, 4, 90.0).startswith("16 forms, 4 documents and 4 shorter ones for needles, about ")
    assert "--presets, --policies, --documents" in estimate_line(16, 4, 4, 700.0)
    assert estimate_line(2, 1, 0, 90.0).startswith("2 forms, 1 document, about ") and "--presets" not in estimate_line(
        2, 1, 0, 90.0
    )


def test_a_text_that_is_too_short_is_named_and_one_for_which_no_document_was_left_is_not() -> None:
    assert texts_too_short(["good", "short"], ["good", "good"], 4) == ("short",)
    assert texts_too_short(["good", "short"], ["good", "good"], 2) == ("short",)
    assert texts_too_short(["good", "other"], ["good"], 1) == ()
    assert "too short, left out: short.txt" in kv_tables(replace(figures(*ALL), too_short=("short.txt",)))


def test_fewer_positions_than_asked_for_are_said_with_the_reason() -> None:
    few = figures(*ALL, positions=500)
    assert "fewer than --tokens 2,048: at most a quarter" in kv_tables(replace(few, load=replace(few.load, tokens=2048)))
    assert "fewer than" not in kv_tables(figures(*ALL))


def without_raised(context: int, *policies: PolicyName) -> KvFigures:
    """Rows of policies that are those of `uniform`."""
    uniform = row("balanced", 0.006, 97)
    found = figures(ALL[0], uniform, *(replace(uniform, form=Form("balanced", policy)) for policy in policies))
    return replace(found, load=replace(found.load, context=context))


def test_policies_that_raise_no_page_are_named_and_none_is_called_the_best() -> None:
    assert "balanced: no page raised by anchors, random: these texts give them none" in said(
        without_raised(320, "anchors", "random")
    )
    shown = said(without_raised(280, "anchors", "random", "attention"))
    assert "balanced: no page raised by anchors, random, attention: too short, 10 % of 9 pages is none" in shown
    assert "loses least" not in shown and "default" not in shown and "--policies" not in shown


def test_a_policy_that_raises_no_page_beside_ones_that_do_stands_apart() -> None:
    found = with_policies(0.0035, 0.0058)
    none = replace(found.forms[1], form=Form("balanced", "combined"))
    shown = said(replace(found, forms=(*found.forms, none)))
    assert "no page raised by combined: these texts give them none" in shown and "anchors loses least" in shown
    assert "other bytes" not in shown


def test_the_legend_explains_chains_gate_and_equal_bytes() -> None:
    shown = said(with_policies(0.0035, 0.0058))
    assert "chains: facts of several places combined." in shown and "gate: whether" in shown
    assert "Equal bytes: those of random" in shown and "Equal bytes" not in said(figures(*ALL))
