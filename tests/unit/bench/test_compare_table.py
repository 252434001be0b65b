"""The lines under the tables of `edge bench compare`."""

from __future__ import annotations

from edge.bench.comparison import OURS, Comparison, Contender, Row
from edge.cli.compare_table import comparison_text

MISSING = "not installed in python (No module named 'llama_cpp')"


def load(prompt: int, **failures: str) -> Comparison:
    rows = [Row(Contender(OURS)), Row(Contender("llama.cpp")), Row(Contender("llama.cpp flash")), Row(Contender("onnxruntime"))]
    for row in rows:
        row.failure = failures.get(row.contender.name.replace(".", "").replace(" ", "_"))
        row.mend = "pip install llama-cpp-python" if row.failure == MISSING else ""
    return Comparison(prompt, 64, tuple(rows))


def lines_under(*comparisons: Comparison) -> list[str]:
    return [line for line in comparison_text(comparisons, "title").splitlines() if "failed" in line]


def test_settings_and_prompts_that_fail_alike_are_one_line_and_its_advice_is_given_once() -> None:
    missing = {"llamacpp": MISSING, "llamacpp_flash": MISSING}
    assert lines_under(load(512, **missing), load(4096, **missing)) == [
        f"llama.cpp, llama.cpp flash: failed: {MISSING}. Install it: pip install llama-cpp-python"
    ]


def test_what_fails_at_one_prompt_only_names_it() -> None:
    assert lines_under(load(512), load(4096, llamacpp="out of memory", onnxruntime="too long")) == [
        "llama.cpp (prompt 4096): failed: out of memory",
        "onnxruntime (prompt 4096): failed: too long",
    ]


def test_nothing_is_said_where_nothing_failed() -> None:
    assert lines_under(load(512)) == []
