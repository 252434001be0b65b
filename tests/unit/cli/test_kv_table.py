"""The tables of `edge bench kv`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from edge.bench.kv import KvFigures, KvLoad, PresetFigures, ReadFigures
from edge.cli.kv_table import kv_tables
from edge.comparison import Comparison
from edge.kv_eval.likeness import Likeness
from edge.kv_eval.recall import RecallCounts
from edge.pages.read_budget import ReadAuto
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


def row(preset: PresetName, kl: float, needles: int) -> PresetFigures:
    comparison = Comparison(2048, kl * 2048, 1.5, 1980, 2048, 5000.0, 5001.0)
    exact = preset == "exact"
    return PresetFigures(
        preset=preset,
        likeness=Likeness(Comparison() if exact else comparison, 7000, 3.0, [0.01, 0.02, 0.03], HELD[preset]),
        verdict=None if exact else judge_preset(preset, comparison, FLOOR, text="t", windows=4, window_tokens=8192),
        recall=RecallCounts(Counter(needle=100, moved=10), Counter(needle=needles, moved=9)),
        exact_recall=RecallCounts(Counter(needle=100, moved=10), Counter(needle=97, moved=9)),
        table_bytes=10_240,
        pool_bytes=1_200_000_000,
        open_bytes=1_188_743_680,
    )


def figures(*rows: PresetFigures, positions: int = 2048) -> KvFigures:
    load = KvLoad(8192, tuple(row.preset for row in rows), 4, positions, 100, 0)
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
    assert "tight failed its gate:\n    needles 90 of at least 97" in shown
    assert "safe failed" not in shown and "Too little" not in shown


def test_the_floor_stands_beside_exact() -> None:
    lines = kv_tables(figures(*ALL)).splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("against exact"))
    assert lines[at + 1].startswith("exact") and lines[at + 2].startswith("  floor") and "0.00293" in lines[at + 2]


def test_little_text_is_no_claim() -> None:
    assert "Too little for a claim: 2,000 positions" in kv_tables(figures(*ALL, positions=500))
