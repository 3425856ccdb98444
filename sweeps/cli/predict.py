"""Verbs that use a bundle: `predict` and `serve`."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import click

from sweeps.cli import options
from sweeps.cli.group import main
from sweeps.core.errors import InputError


@main.command(short_help="Predict from the raw rows of a table.")
@options.bundle
@click.argument("source", metavar="INPUT")
@click.option(
    "-o",
    "--output",
    default=None,
    help="CSV, TSV, JSON lines or Parquet file to write, a path or a URI.  [default: CSV on "
    "standard output]",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of processes that predict a Parquet file. With more than one, Ray runs them.",
)
@options.root
def predict(bundle: Path, source: str, output: str | None, workers: int, root: Path) -> None:
    """Predict with BUNDLE from the raw rows of INPUT, the path or URI of a CSV, TSV, JSON lines or Parquet file.

    BUNDLE is the folder of a bundle. It can also be a sweep: its folder, its name, the beginning of
    its name, or `latest`. The bundle of the sweep's best trial is then used. Ray starts only if
    there are several workers.
    """
    from sweeps.bundle.model import load_bundle
    from sweeps.bundle.predict import check_files, predict_file
    from sweeps.controller.sweep_lookup import bundle_of
    from sweeps.terminal.progress_line import row_counter

    path = bundle_of(bundle, root)
    check_files(source, output)
    loaded = load_bundle(path)
    with row_counter(sys.stderr if output else None) as on_rows:
        predict_file(loaded, source, output or sys.stdout.buffer, on_rows, workers)
    for note in loaded.unseen_notes:
        click.echo(f"note: {note}", err=True)
    if output is not None:
        click.echo(f"wrote {output}", err=True)


@main.command()
@options.bundle
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Port to listen on; 0 picks a free port.",
)
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
    "--receive-timeout",
    type=click.IntRange(1),
    default=30,
    show_default=True,
    help="Seconds within which a request must arrive; a slower request gets the status 408.",
)
@click.option(
    "--max-connections",
    type=click.IntRange(1),
    default=None,
    help="Limit of open connections; further clients wait.  [default: 500]",
)
@click.option(
    "--allowed-hosts",
    default=None,
    metavar="HOST[,HOST]",
    help="Allowed values of the Host header.  [default: any]",
)
@click.option(
    "--token",
    default=None,
    help="Bearer token that requests must have. `ps` shows it, so prefer --token-file.",
)
@click.option(
    "--token-file",
    type=options.PATH,
    default=None,
    help="File with the token.  [default: $SWEEPS_SERVE_TOKEN, else none]",
)
@click.option(
    "--replicas",
    type=click.IntRange(1),
    default=None,
    help="Number of Ray Serve processes that answer requests.  [default: only this process, "
    "without Ray]",
)
@click.option(
    "--address",
    default=None,
    help="Address of a Ray cluster for the replicas.  [default: start Ray on this machine]",
)
@click.option(
    "--no-example", is_flag=True, help="Do not show a row of the data at /docs and /example."
)
@options.root
def serve(
    bundle: Path,
    root: Path,
    host: str,
    port: int,
    replicas: int | None,
    address: str | None,
    **options: Any,
) -> None:
    """Serve BUNDLE over HTTP until Ctrl-C: POST rows to /predict.

    BUNDLE is the folder of a bundle. It can also be a sweep: its folder, its name, the beginning of
    its name, or `latest`. The bundle of the sweep's best trial is then used. Ray starts only with
    --replicas or --address.
    """
    from sweeps.controller.sweep_lookup import bundle_of
    from sweeps.serving.access import Access, token_of
    from sweeps.serving.limits import MAX_CONNECTIONS, Limits

    example = not options["no_example"]
    under_ray = replicas is not None or address is not None
    if under_ray and options["max_connections"] is not None:
        text = (
            "cannot be used with --replicas or --address, because Ray Serve's proxy has no limit "
            "on connections; put a "
            "proxy with this limit in front of the server"
        )
        raise InputError("--max-connections", text)
    access = Access.of(options["allowed_hosts"], token_of(options["token"], options["token_file"]))
    max_connections = options["max_connections"] or MAX_CONNECTIONS
    limits = Limits(
        options["max_bytes"], options["max_rows"], options["receive_timeout"], max_connections
    )
    bundle = bundle_of(bundle, root)
    print_line = functools.partial(click.echo, err=True)
    if under_ray:
        from sweeps.serving.replicas import serve as serve_by_replicas

        serve_by_replicas(
            bundle, host, port, print_line, limits, access, replicas or 1, address, example
        )
    else:
        from sweeps.serving.server import serve as serve_alone

        serve_alone(bundle, host, port, print_line, limits, access, example)
