"""`edge lint`: the anchors of a text, its sections and zones, and the KV memory that it will take. Nothing is loaded but a
tokenizer, where a model is given."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge.cli.models import is_package
from edge.cli.options import context_option, json_option, offline_option
from edge.errors import RequestError
from edge.text.normalise import prompt_text
from edge.units import human_bytes

if TYPE_CHECKING:
    from edge.anchors.report import Model

LARGEST_TEXT = 16 << 20  # bytes; what looks at a text takes a hundred times its size in memory


@click.command(name="lint")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("-m", "--model", "--package", "model", envvar="EDGE_MODEL", show_envvar=True,
              help="NAME.edge or another MODEL: its tokenizer and its bytes. Without one, tokens are estimated.")  # fmt: skip
@context_option("the tokens of the text")
@click.option("--anchor-window", type=click.IntRange(min=0),
              help="Tokens around an anchor in its zone, 512 in the articles.  [default: yaml/runtime/anchors.yaml]",
)  # fmt: skip
@click.option("--sections", type=click.IntRange(min=0), default=24, show_default=True, help="Sections to list at most.")
@click.option("--png", type=click.Path(path_type=Path), help="Also draw the map into this file (matplotlib).")
@offline_option()
@json_option()
def command(
    files: tuple[str, ...],
    model: str | None,
    context: int | None,
    anchor_window: int | None,
    sections: int,
    png: Path | None,
    offline: bool,
    as_json: bool,
) -> None:
    """Show what EdgeZero sees in each FILE (UTF-8 text, Markdown or HTML; `-` is standard input): anchors and the signals that
    found them, sections, zones of its pages, and the KV memory that it takes in each preset.

    An anchor is where a reader would put a bookmark: a heading, the number of a clause, a change of topic.
    """
    if png is not None:
        from edge.bench.plot import need_matplotlib

        need_matplotlib(png, "--png")
    texts = [(name, _read(name)) for name in files]  # what is wrong with one is said before anything is computed
    from edge.anchors.config import AnchorConfig
    from edge.anchors.phrases import load_phrases
    from edge.anchors.report import report_row, report_text
    from edge.cli.lint_text import report_lines

    config, phrases = AnchorConfig.load(), load_phrases()
    if anchor_window is not None:
        config = replace(config, anchor_window=anchor_window)
    opened = None if model is None else _open_model(model, offline)
    reports = [report_text(name, text, config, phrases, opened, context) for name, text in texts]
    if as_json:
        row = {"model": None if opened is None else opened.name, "anchor_window": config.anchor_window}
        click.echo(json.dumps(row | {"files": [report_row(report) for report in reports]}))
    else:
        click.echo("\n\n".join(report_lines(report, sections) for report in reports))
        for report in reports:
            if opened is not None and report.num_tokens > opened.longest:
                click.echo(
                    f"edge: {report.name}: {report.num_tokens:,} tokens are more than {opened.name} takes ({opened.longest:,})",
                    err=True,
                )
    if png is not None:
        from edge.anchors.plot import plot_reports

        if missing := plot_reports(reports, png):
            click.echo(
                f"edge: {png}: no font here has {missing} of its characters, boxes stand for them. Install one: fonts-noto-cjk "
                "for Chinese",
                err=True,
            )


def _read(name: str) -> str:
    """The text in NFC, as a model gets it. RequestError where it is empty, not UTF-8, or larger than is looked at."""
    if name == "-":
        data, what = sys.stdin.buffer.read(LARGEST_TEXT + 1), "standard input"
    else:
        with Path(name).expanduser().open("rb") as file:
            data, what = file.read(LARGEST_TEXT + 1), name
    if len(data) > LARGEST_TEXT:
        raise RequestError(f"{what}: more than {human_bytes(LARGEST_TEXT)} of text. Give it in parts")
    return prompt_text(data, what)


def _open_model(text: str, offline: bool) -> Model:
    """Tokenizer and numbers of a package, or of what a package is built from."""
    from edge.anchors.report import Model

    if is_package(Path(text)) or Path(text).suffix == ".edge":
        from edge.package import Package

        package = Package.open(Path(text), force=True)
        return Model(text, package.open_tokenizer(), package.spec, package.manifest.limits.max_context)
    return _source_model(text, offline)


def _source_model(text: str, offline: bool) -> Model:
    from tempfile import TemporaryDirectory

    from edge.anchors.report import Model
    from edge.cli.build_extra import need_build_extra
    from edge.cli.models import find_model
    from edge.cli.progress import terminal_progress
    from edge.text.tokenizer import Tokenizer

    need_build_extra("edge lint with a model that is not built")
    from engines.sources.base import open_source
    from engines.sources.tokenizers import write_source_tokenizer

    with terminal_progress() as progress:
        found = find_model(text, progress, offline=offline, hashed=False)
    source = open_source(found.path)
    with TemporaryDirectory() as folder:  # the tables stay mapped when it is gone
        write_source_tokenizer(source.metadata, Path(folder))
        tokenizer = Tokenizer.open(Path(folder))
    return Model(text, tokenizer, source.spec, source.spec.context_length)
