"""Verbs that use a bundle: `predict` and `serve`."""

import functools
import sys
from pathlib import Path
from typing import Any

import click

from . import options
from .group import main


@main.command(short_help="Predict from the raw rows of a table.")
@options.bundle
@click.argument("source", metavar="INPUT")
@click.option(
    "-o",
    "--output",
    help="CSV, TSV, JSON lines or Parquet file to write, a path or a URI.  [default: CSV on "
    "standard output]",
)
@options.root
def predict(bundle: Path, source: str, output: str | None, root: Path) -> None:
    """Predict with BUNDLE from the raw rows of INPUT.

    INPUT is the path or URI of a CSV, TSV, JSON lines or Parquet file.

    BUNDLE is the folder of a bundle. It can also be a sweep: its folder, its name, the beginning of
    its name, or `latest`. The bundle of the sweep's best trial is then used.
    """
    from sweeps.bundle.bundle_model import load_bundle
    from sweeps.bundle.predict_rows import check_files, predict_file
    from sweeps.stored.sweep_lookup import bundle_of
    from sweeps.terminal.progress_line import row_counter

    path = bundle_of(bundle, root)
    check_files(source, output)
    loaded = load_bundle(path)
    with row_counter(sys.stderr if output else None) as on_rows:
        predict_file(loaded, source, output or sys.stdout.buffer, on_rows)
    for note in loaded.unseen_notes:
        click.echo(f"note: {note}", err=True)
    if output is not None:
        click.echo(f"wrote {output}", err=True)


@main.command()
@options.bundle
@options.host
@options.port(8000)
@click.option(
    "--max-bytes",
    type=click.IntRange(1),
    default=10 * 2**20,
    show_default=True,
    help="Size limit of a request in bytes; a larger request gets the status 413.",
)
@click.option(
    "--max-rows",
    type=click.IntRange(1),
    default=10_000,
    show_default=True,
    help="Row limit of a request; a request with more rows gets the status 413.",
)
@click.option(
    "--max-connections",
    type=click.IntRange(1),
    default=500,
    show_default=True,
    help="Limit of open connections; requests above it get the status 503.",
)
@options.allowed_hosts("any")
@options.token
@options.token_file("$SWEEPS_SERVE_TOKEN, else none")
@click.option(
    "--no-example", is_flag=True, help="Do not show a row of the data at /docs and /example."
)
@options.root
def serve(bundle: Path, root: Path, host: str, port: int, **settings: Any) -> None:
    """Serve BUNDLE over HTTP until Ctrl-C: POST rows to /predict.

    BUNDLE is the folder of a bundle. It can also be a sweep: its folder, its name, the beginning of
    its name, or `latest`. The bundle of the sweep's best trial is then used.
    """
    from sweeps.serving import prediction_server
    from sweeps.serving.access import Access, token_of
    from sweeps.serving.limits import RequestLimits
    from sweeps.stored.sweep_lookup import bundle_of

    limits = RequestLimits(settings["max_bytes"], settings["max_rows"], settings["max_connections"])
    token = token_of(settings["token"], settings["token_file"])
    server = prediction_server.ServerOptions(
        host=host,
        port=port,
        limits=limits,
        access=Access.of(settings["allowed_hosts"], token),
        example=not settings["no_example"],
    )
    prediction_server.serve(
        bundle_of(bundle, root), server, functools.partial(click.echo, err=True)
    )
