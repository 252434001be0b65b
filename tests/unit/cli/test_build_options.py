"""What may be asked of `edge build` together, and what it says of a last step that it does not do."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edge.cli import build
from edge.cli.build_extra import BUILD_LIBRARIES
from edge.cli.main import main


def edge(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str, str]:
    """Exit code, stdout and stderr of a command."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    out = capsys.readouterr()
    return ended.value.code, out.out, out.err


def test_what_belongs_to_a_model_is_refused_beside_a_package(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--finish", "--tier", "fp16", "--target", "cpu", "-o", "x.edge", "-c", "9", "--requantise", "--offline")
    code, _, err = edge(capsys, "build", "a.edge", *words)
    assert code == 2
    names = "--tier, --target, --ctx-size, --out, --requantise, --offline"
    assert f"a.edge is a package, and {names} belong to a build from a model. Leave them out" in err


def test_one_option_of_a_model_is_refused_too(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = edge(capsys, "build", "a.edge", "--finish", "--verify-tokens", "64")
    assert code == 2 and "a.edge is a package, and --verify-tokens belongs to a build from a model. Leave it out" in err


def test_variables_for_builds_are_no_options_of_a_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGE_TIER", "fp16")
    code, _, err = edge(capsys, "build", str(tmp_path / "none.edge"), "--finish")
    assert code == 1 and "none.edge" in err


@pytest.mark.build
@pytest.mark.parametrize(("words", "kind"), [((), "cpu"), (("--target", "a10"), "tensorrt-rtx")])
def test_a_last_step_of_an_engine_that_has_none_is_refused_first(
    words: tuple[str, ...], kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for library in BUILD_LIBRARIES:
        pytest.importorskip(library, reason=f"needs the build extra: {library}")
    monkeypatch.setattr("engines.build.check_engine_kind", lambda *asked: kind)
    code, _, err = edge(capsys, "build", "smollm2-135m-instruct", *words, "--finish", "--offline")
    assert code == 2 and f"a {kind} engine has no last step. Leave --finish out" in err


def test_a_last_step_that_a_failed_verdict_prevents_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    report: Any = SimpleNamespace(
        passed=False,
        path=Path("my model.edge"),
        text=lambda: "the report",
        planned_bytes=1,
        builder=None,
        next_step="copy it, then finish it",
    )
    monkeypatch.setattr(build, "_build", lambda *words, **asked: report)
    code, out, err = edge(capsys, "build", "model", "--target", "orin-nx-16", "--finish")
    assert code == 1 and "the report" in out
    assert "edge: not finished, since a verdict failed. To do so all the same: edge build 'my model.edge' --finish" in err


def test_a_package_without_a_step_is_told_as_it_must_be_typed(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = edge(capsys, "build", "my model.edge")
    assert code == 2 and "The last step of a package: edge build 'my model.edge' --finish" in err
